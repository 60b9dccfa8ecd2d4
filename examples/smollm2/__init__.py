"""SmolLM2-135M-Instruct learns from its own frozen copy, which may see worked solutions."""
