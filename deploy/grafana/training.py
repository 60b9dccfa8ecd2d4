"""Whether the student learns, and whether its numbers can be trusted."""

from __future__ import annotations

from deploy.grafana.panels import OF_JOB, ON_LANE, Dashboard, Panel, Query, Row, step_quantity

RESULT = (
    Panel(
        "Accuracy",
        "Held-out problems, and the training samples of the step.",
        (step_quantity("heldout_accuracy", "held-out"), step_quantity("correct_share", "training samples")),
        "percentunit",
    ),
    Panel(
        "Reverse KL to each teacher",
        "Nats a token, estimated on the student's own samples. It should fall.",
        (Query(f"potstill_learner_teacher_reverse_kl{{{ON_LANE}}} {OF_JOB}", "{{teacher}}"),),
        "none",
    ),
    Panel(
        "Step",
        "Optimizer steps taken, and planned.",
        (
            Query(f"potstill_learner_step{{{ON_LANE}}} {OF_JOB}", "taken"),
            Query(f"potstill_learner_planned_steps{{{ON_LANE}}} {OF_JOB}", "planned"),
        ),
        kind="number",
    ),
)
SIGNAL = (
    Panel(
        "Tokens that the gate zeroed",
        "Of tokens that count; apart for samples that are right and wrong.",
        (
            step_quantity("gate_zeroed_share", "all"),
            step_quantity("gate_zeroed_share_right", "of right samples"),
            step_quantity("gate_zeroed_share_wrong", "of wrong samples"),
        ),
        "percentunit",
    ),
    Panel(
        "Groups",
        "Prompts whose samples are all right, mixed or all wrong.",
        (
            step_quantity("groups_all_right", "all right"),
            step_quantity("groups_mixed", "mixed"),
            step_quantity("groups_all_wrong", "all wrong"),
        ),
        kind="stack",
    ),
    Panel(
        "Log-probability of sampled tokens",
        "Means in nats: of the teacher, of the student, and as sampled.",
        (
            step_quantity("teacher_logprob", "teacher"),
            step_quantity("student_logprob", "student"),
            step_quantity("behaviour_logprob", "behaviour"),
        ),
        "none",
    ),
    Panel("Entropy", "Of the student, nats a token.", (step_quantity("entropy", "entropy"),), "none"),
    Panel(
        "Advantage and loss",
        "Means over counted tokens.",
        (step_quantity("advantage", "advantage"), step_quantity("loss", "loss")),
        "none",
    ),
)
SAMPLES = (
    Panel(
        "Response length",
        "Mean over the step's samples, tokens.",
        (step_quantity("response_tokens", "tokens"),),
        "none",
    ),
    Panel(
        "How samples end",
        "By a stop token, at max_tokens, or cut off by the service.",
        (
            step_quantity("finish_stop_share", "stop"),
            step_quantity("truncated_share", "truncated"),
            step_quantity("finish_abort_share", "aborted"),
        ),
        "percentunit",
        "stack",
    ),
    Panel(
        "Samples without a verdict",
        "Trouble of the verifier: masked, never a score.",
        (step_quantity("undetermined_share", "undetermined"), step_quantity("sandbox_error_share", "sandbox error")),
        "percentunit",
    ),
    Panel(
        "Values that could not be had",
        "Response tokens of the step without a value of the teacher, or of the student that wrote them.",
        (step_quantity("missing_teacher_tokens", "teacher"), step_quantity("missing_behaviour_tokens", "behaviour")),
    ),
)
OPTIMIZATION = (
    Panel("Gradient norm", "Before clipping.", (step_quantity("gradient_norm", "norm"),), "none", log=True),
    Panel("Learning rate", "Of the step.", (step_quantity("learning_rate", "learning rate"),), "sci"),
    Panel(
        "Mismatch of engines",
        "KL from the policy that sampled to the one that learns, nats a token. High on fresh samples: engines differ.",
        (step_quantity("mismatch_kl", "mismatch KL"),),
        "none",
    ),
    Panel(
        "Importance weights",
        "Mean after the cap, largest ratio before it.",
        (step_quantity("importance_mean", "mean"), step_quantity("importance_max", "largest")),
        "none",
    ),
    Panel(
        "Importance weights capped",
        "Share of counted tokens.",
        (step_quantity("importance_capped_share", "capped"),),
        "percentunit",
    ),
    Panel(
        "Updates skipped",
        "Steps whose gradient was not finite, since the process began.",
        (Query(f"potstill_learner_skipped_updates_total{{{ON_LANE}}}", "skipped"),),
    ),
)

TRAINING = Dashboard(
    "training",
    "Potstill: training",
    "Whether the student learns, and whether its numbers can be trusted.",
    (
        Row("Result", RESULT),
        Row("Signal", SIGNAL),
        Row("Samples", SAMPLES),
        Row("Optimisation", OPTIMIZATION),
    ),
)
