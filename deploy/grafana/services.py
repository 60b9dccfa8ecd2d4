"""How each service does: latency, errors, admission, engines, verdicts."""

from __future__ import annotations

from deploy.grafana.panels import ON_INSTANCE, ON_LANE, Dashboard, Panel, Query, Row, quantile, rate

HTTP = (
    Panel(
        "Requests",
        "Answered a second.",
        (rate("potstill_http_requests_total", "service", ON_INSTANCE, "{{service}}"),),
        "reqps",
    ),
    Panel(
        "Latency",
        "95th percentile of what is asked of each service; probes and metrics left out.",
        (
            quantile(
                0.95,
                "potstill_http_request_seconds",
                "service, route",
                f'route=~"/v1/.*", {ON_INSTANCE}',
                "{{service}} {{route}}",
            ),
        ),
        "s",
    ),
    Panel(
        "Errors",
        "Share of answers with status 429 or 5xx.",
        (Query("potstill:http_errors:share1m", "{{service}}"),),
        "percentunit",
    ),
    Panel(
        "In flight",
        "Requests being worked on, by replica.",
        (Query(f"potstill_http_requests_in_flight{{{ON_INSTANCE}}}", "{{service}} {{instance}}"),),
    ),
)
STUDENT = (
    Panel(
        "Student: samples",
        "Admitted and not answered yet, and (torch engine) in a slot, by replica.",
        (
            Query(f"potstill_student_samples_pending{{{ON_LANE}}}", "pending {{instance}}"),
            Query(f"potstill_student_samples_running{{{ON_LANE}}}", "running {{instance}}"),
        ),
    ),
    Panel(
        "Student: policy versions",
        "Oldest and newest over the replicas of a lane. A replica that lags catches up with its next request.",
        (
            Query('min by (lane) (potstill_student_policy_version{lane=~"$lane"})', "oldest"),
            Query('max by (lane) (potstill_student_policy_version{lane=~"$lane"})', "newest"),
        ),
    ),
    Panel(
        "Student: policy swaps",
        "Mean seconds: to let samples in flight end, and to load.",
        (
            Query(
                f"sum by (phase) (rate(potstill_student_policy_swap_seconds_sum{{{ON_LANE}}}[$__rate_interval]))"
                f" / sum by (phase) (rate(potstill_student_policy_swap_seconds_count{{{ON_LANE}}}[$__rate_interval]))",
                "{{phase}}",
            ),
        ),
        "s",
    ),
    Panel(
        "Student: engine (torch)",
        "Share of time in decoding and in reading prompts, by replica.",
        (
            rate("potstill_student_decode_seconds_total", "instance", ON_LANE, "decode {{instance}}"),
            rate("potstill_student_prefill_seconds_total", "instance", ON_LANE, "prompts {{instance}}"),
        ),
        "percentunit",
    ),
    Panel(
        "Student: generation",
        "Seconds from admission to the samples.",
        (
            quantile(0.5, "potstill_student_generate_seconds", "lane", ON_LANE, "median"),
            quantile(0.95, "potstill_student_generate_seconds", "lane", ON_LANE, "95th percentile"),
        ),
        "s",
    ),
    Panel(
        "Student: refused, given up, failed swaps",
        "A second.",
        (
            rate("potstill_student_rejections_total", "code", ON_LANE, "{{code}}"),
            Query(f"sum(rate(potstill_student_aborted_samples_total{{{ON_LANE}}}[$__rate_interval]))", "aborted"),
            Query(
                'sum(rate(potstill_student_policy_swaps_total{outcome="failed", lane=~"$lane"}[$__rate_interval]))',
                "failed swaps",
            ),
        ),
    ),
)
TEACHER = (
    Panel(
        "Teacher: requests",
        "Admitted and waiting for admission, by replica.",
        (
            Query(f"potstill_teacher_requests_running{{{ON_INSTANCE}}}", "admitted {{instance}}"),
            Query(f"potstill_teacher_requests_pending{{{ON_INSTANCE}}}", "waiting {{instance}}"),
        ),
    ),
    Panel(
        "Teacher: seconds",
        "95th percentile of waiting for admission, and of computing.",
        (quantile(0.95, "potstill_teacher_phase_seconds", "phase", ON_INSTANCE, "{{phase}}"),),
        "s",
    ),
    Panel(
        "Teacher: memory",
        "Estimated memory of admitted requests, of what they may take together, by replica.",
        (
            Query(
                f"potstill_teacher_admitted_bytes{{{ON_INSTANCE}}} / potstill_teacher_memory_limit_bytes",
                "{{instance}}",
            ),
        ),
        "percentunit",
    ),
    Panel(
        "Teacher: tokens",
        "A second: prompt tokens computed and reused, response tokens scored.",
        (rate("potstill_teacher_tokens_total", "kind", ON_INSTANCE, "{{kind}}"),),
    ),
    Panel(
        "Teacher: refused, and values missing",
        "A second.",
        (
            rate("potstill_teacher_rejections_total", "code", ON_INSTANCE, "{{code}}"),
            rate("potstill_teacher_missing_values_total", "field", ON_INSTANCE, "missing {{field}}"),
        ),
    ),
)
VERIFIER = (
    Panel(
        "Verdicts",
        "A second, as workers receive them.",
        (rate("potstill_rollout_verdicts_total", "verdict", ON_LANE, "{{verdict}}"),),
        kind="stack",
    ),
    Panel(
        "No verdict",
        "Share of items that ended undetermined or in a sandbox error, by kind.",
        (Query("potstill:verdict_trouble:share5m", "{{kind}}"),),
        "percentunit",
    ),
    Panel(
        "Verifier: queue",
        "Items that wait, by replica.",
        (Query(f"potstill_verifier_queue_depth{{{ON_INSTANCE}}}", "{{instance}}"),),
    ),
    Panel(
        "Verifier: seconds",
        "95th percentile of waiting for a worker, and of judging.",
        (
            quantile(0.95, "potstill_verifier_queue_seconds", "", ON_INSTANCE, "wait"),
            quantile(0.95, "potstill_verifier_item_seconds", "kind", ON_INSTANCE, "judge {{kind}}"),
        ),
        "s",
    ),
    Panel(
        "Verifier: workers",
        "That live, by replica.",
        (Query(f"potstill_verifier_workers{{{ON_INSTANCE}}}", "{{instance}}"),),
    ),
    Panel(
        "Verifier: workers ended",
        "A second, by reason. `recycled` is routine.",
        (rate("potstill_verifier_workers_ended_total", "reason", ON_INSTANCE, "{{reason}}"),),
    ),
    Panel(
        "Verifier: isolation",
        "Layers of the sandbox that every worker of a replica has found in force; 0 is one that some worker lacks.",
        (Query(f"min by (layer) (potstill_verifier_isolation{{{ON_INSTANCE}}})", "{{layer}}"),),
        kind="bars",
    ),
)
QUEUE_SERVER = (
    Panel("Jobs", "By state.", (Query("max by (state) (potstill_jobs)", "{{state}}"),), kind="stack"),
    Panel(
        "Submissions",
        "Accepted, repeated and refused, since the gateway began.",
        (
            Query("sum by (outcome) (potstill_job_submissions_total)", "{{outcome}}"),
            Query("sum(potstill_job_refusals_total)", "refused"),
        ),
    ),
    Panel(
        "Queue server: memory",
        "Used, of its maxmemory or of the machine.",
        (Query("potstill_queue_server_memory_bytes / potstill_queue_server_memory_limit_bytes", "used"),),
        "percentunit",
    ),
    Panel(
        "Replicas up",
        "That answer Prometheus.",
        (Query('sum by (service) (up{service!=""})', "{{service}}"),),
    ),
)

SERVICES = Dashboard(
    "services",
    "Potstill: services",
    "How each service does: latency, errors, admission, engines, verdicts.",
    (
        Row("HTTP", HTTP),
        Row("Student", STUDENT),
        Row("Teacher", TEACHER),
        Row("Verifier", VERIFIER),
        Row("Gateway and queue server", QUEUE_SERVER),
    ),
)
