"""Runs whose outcome is committed under docs/results, and what writes it there."""
