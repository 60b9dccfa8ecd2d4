"""Which objective teaches most for the same budget? `python -m benchmarks.objectives`, to docs/results/objectives.*

Three settings, small enough for two cores: a pair trained by supervision, two teachers of one domain each, and a
teacher made by reinforcement learning from the student. Each setting has one running platform, one job after the
other: every objective with every seed, the same steps, prompts, samples and learning rate. What is done is kept
in docs/results/objectives.jsonl and not run again. A seed is run on one machine, whose models it names.
"""
