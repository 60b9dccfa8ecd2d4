"""Write the dashboards: `python -m deploy.grafana.build`."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
    StackingMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, VariableRefresh

from deploy.grafana.panels import Dashboard, Panel, Query
from deploy.grafana.pipeline import PIPELINE
from deploy.grafana.services import SERVICES
from deploy.grafana.training import TRAINING

DASHBOARDS = (TRAINING, PIPELINE, SERVICES)
HERE = Path(__file__).parent
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDTH, HEIGHT = 8, 7  # of a panel, on Grafana's grid of 24 columns
VARIABLES = {
    "lane": "label_values(potstill_build_info, lane)",
    "job": "label_values(potstill_learner_job_info, job_id)",
    "instance": "label_values(potstill_build_info, instance)",
}
AnyPanel = timeseries.Panel | bargauge.Panel | stat.Panel


def document(board: Dashboard) -> str:
    """The JSON that Grafana reads."""
    builder = (
        dashboard.Dashboard(board.title)
        .uid(f"potstill-{board.name}")
        .description(board.about)
        .tags(["potstill"])
        .timezone("browser")
        .refresh("15s")
        .time("now-1h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("source").type("prometheus"))
    )
    for name, query in VARIABLES.items():
        builder = builder.with_variable(_variable(name, query))
    ids = itertools.count(1)
    for row in board.rows:
        builder = builder.with_row(dashboard.Row(row.title).id(next(ids)))
        for panel in row.panels:
            builder = builder.with_panel(_panel(panel).id(next(ids)))
    return json.dumps(builder.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _variable(name: str, query: str) -> dashboard.QueryVariable:
    # `.*` matches a label that is not there, such as the lane where there is only one.
    variable = dashboard.QueryVariable(name).query(query).datasource(SOURCE).multi(True).include_all(True)
    return variable.all_value(".*").refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)


def _panel(panel: Panel) -> AnyPanel:
    built: AnyPanel
    if panel.kind == "bars":
        built = bargauge.Panel().orientation(VizOrientation.HORIZONTAL).min(0)
    elif panel.kind == "number":
        built = stat.Panel().graph_mode(BigValueGraphMode.NONE)
    else:
        built = _over_time(panel)
    built = built.title(panel.title).description(panel.about).unit(panel.unit).datasource(SOURCE)
    for index, query in enumerate(panel.queries):
        built = built.with_target(_target(query, chr(ord("A") + index), instant=panel.kind in ("bars", "number")))
    return built.span(WIDTH).height(HEIGHT)


def _over_time(panel: Panel) -> timeseries.Panel:
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.TABLE).placement(LegendPlacement.BOTTOM)
    built = timeseries.Panel().legend(legend.show_legend(True).calcs(["min", "max", "lastNotNull"]))
    if panel.unit == "percentunit":
        built = built.min(0)
    if panel.kind == "stack":
        built = built.fill_opacity(60).stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    if panel.log:
        built = built.scale_distribution(common.ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10))
    return built


def _target(query: Query, ref_id: str, *, instant: bool) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref_id)
    return target.instant() if instant else target.range()


def main() -> None:
    for board in DASHBOARDS:
        (HERE / f"{board.name}.json").write_text(document(board))


if __name__ == "__main__":
    main()
