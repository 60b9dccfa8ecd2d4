# The commands are tried on the gateway's own test bed.
from tests.services.gateway.conftest import (  # noqa: F401
    gateway,
    queue,
    serve_capabilities,
    start_gateway,
    student_url,
    teacher_url,
    verifier_url,
)
