"""Where the time goes: from tickets to steps."""

from __future__ import annotations

from deploy.grafana.panels import OF_JOB, ON_LANE, Dashboard, Panel, Query, Row, quantile, rate, step_quantity

ONE_LOOK = (
    Panel(
        "Where tickets are",
        "Mean number of tickets in each phase over a minute. The longest bar is the bottleneck: `queued` says that "
        "workers are at their limit.",
        (Query('potstill:tickets_in_phase:mean1m{lane=~"$lane"}', "{{phase}}"),),
        kind="bars",
    ),
    Panel(
        "Who waits for whom",
        "Share of the learner's time. Much waiting: sampling is the bottleneck. None: the learner is.",
        (Query('potstill:learner_time:share1m{lane=~"$lane"}', "{{phase}}"),),
        "percentunit",
        "bars",
    ),
    Panel(
        "Since the newest step",
        "Seconds, against the 95th percentile of the last six hours.",
        (
            Query(
                f"time() - potstill_learner_last_step_timestamp_seconds{{{ON_LANE}}} {OF_JOB}", "since the newest step"
            ),
            Query('potstill:step_seconds:p95_6h{lane=~"$lane"}', "95th percentile"),
        ),
        "s",
        "number",
    ),
)
THROUGHPUT = (
    Panel(
        "Tokens a second",
        "Sampled by students, scored by teachers, trained on.",
        (
            Query(
                f'sum(rate(potstill_student_tokens_total{{kind="response", {ON_LANE}}}[$__rate_interval]))', "sampled"
            ),
            Query('sum(rate(potstill_teacher_tokens_total{kind="response"}[$__rate_interval]))', "scored"),
            Query(f"sum(rate(potstill_learner_tokens_total{{{ON_LANE}}}[$__rate_interval]))", "trained on"),
        ),
    ),
    Panel(
        "A step's time",
        "Seconds a step by phase of the learner.",
        (
            Query(
                f"sum by (phase) (rate(potstill_learner_phase_seconds_total{{{ON_LANE}}}[$__rate_interval]))"
                " / ignoring (phase) group_left "
                f"sum(rate(potstill_learner_step_duration_seconds_count{{{ON_LANE}}}[$__rate_interval]))",
                "{{phase}}",
            ),
        ),
        "s",
        "stack",
    ),
    Panel(
        "Step duration",
        "From one step's report to the next.",
        (
            quantile(0.5, "potstill_learner_step_duration_seconds", "lane", ON_LANE, "median"),
            quantile(0.95, "potstill_learner_step_duration_seconds", "lane", ON_LANE, "95th percentile"),
        ),
        "s",
    ),
    Panel(
        "A ticket's time",
        "Median seconds of a ticket in each phase.",
        (quantile(0.5, "potstill_rollout_phase_seconds", "phase", ON_LANE, "{{phase}}"),),
        "s",
    ),
)
QUEUE = (
    Panel(
        "Tickets",
        "In the lane's queue.",
        (Query('max by (lane, state) (potstill_queue_tickets{lane=~"$lane"})', "{{state}}"),),
        kind="stack",
    ),
    Panel(
        "Age",
        "Of the oldest ticket in the queue, and of the oldest group that no learner has put on disk.",
        (
            Query('max by (lane) (potstill_queue_oldest_ticket_seconds{lane=~"$lane"})', "ticket"),
            Query("max(potstill_trajectory_oldest_seconds)", "group"),
        ),
        "s",
    ),
    Panel(
        "Groups",
        "Waiting in the stream, and those that the learner is waiting for.",
        (
            Query("max(potstill_trajectory_groups)", "in the stream"),
            Query(f"potstill_learner_missing_groups{{{ON_LANE}}} {OF_JOB}", "missing"),
        ),
    ),
    Panel(
        "Tickets by outcome",
        "A second; tombstones, aborted and duplicate ones are trouble.",
        (rate("potstill_rollout_tickets_total", "outcome", ON_LANE, "{{outcome}}"),),
        kind="stack",
    ),
)
FRESHNESS = (
    Panel(
        "Staleness",
        "Updates between the policy that sampled and the one updated; the bound is the job's max_staleness.",
        (
            step_quantity("staleness_mean", "mean"),
            step_quantity("staleness_max", "largest"),
            Query(f"potstill_learner_staleness_bound{{{ON_LANE}}} {OF_JOB}", "bound"),
        ),
    ),
    Panel(
        "Policy versions",
        "Published by the learner, and served by the students.",
        (
            Query(f"potstill_learner_published_policy{{{ON_LANE}}} {OF_JOB}", "published"),
            Query('min by (lane) (potstill_student_policy_version{lane=~"$lane"})', "served, oldest"),
            Query('max by (lane) (potstill_student_policy_version{lane=~"$lane"})', "served, newest"),
        ),
    ),
    Panel(
        "Tickets given up",
        "A second, by reason.",
        (rate("potstill_rollout_tombstones_total", "reason", ON_LANE, "{{reason}}"),),
    ),
    Panel(
        "Requests repeated",
        "A second, by the service that was busy or away.",
        (rate("potstill_rollout_retries_total", "peer", ON_LANE, "{{peer}}"),),
    ),
)

PIPELINE = Dashboard(
    "pipeline",
    "Potstill: pipeline",
    "Where the time goes: from tickets to steps.",
    (
        Row("In one look", ONE_LOOK),
        Row("Throughput", THROUGHPUT),
        Row("Queue", QUEUE),
        Row("Freshness and trouble", FRESHNESS),
    ),
)
