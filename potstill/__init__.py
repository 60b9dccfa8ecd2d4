"""Potstill: on-policy distillation of language models as a platform of microservices."""

__version__ = "0.1.0"
