"""Dashboards as code: `python -m deploy.grafana.build` writes the JSON files beside it."""
