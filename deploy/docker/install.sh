#!/bin/sh
# Inside a build: put potstill and one process into /opt/potstill, and leave out what an image has no use for.
set -eu
service=$1
find services -mindepth 1 -maxdepth 1 -type d ! -name "$service" -exec rm -rf {} +
[ "$service" = learner ] || { rm -rf learner && mkdir learner; }
/opt/potstill/bin/python -m pip install --no-deps .
/opt/potstill/bin/python -m compileall -q -j 0 /opt/potstill/lib >/dev/null || true  # some packages carry files of other versions
rm -rf /opt/potstill/lib/python3*/site-packages/pip /opt/potstill/lib/python3*/site-packages/pip-*.dist-info /opt/potstill/bin/pip*
