"""Rules and alerts, and a Prometheus to evaluate them with."""
