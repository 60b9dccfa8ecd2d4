# One process on CPUs. SERVICE: gateway, student, teacher, verifier, rollout or learner.
ARG BASE

FROM ${BASE} AS build
ARG SERVICE
# Where the CPU build of torch lies; empty where the package index itself has it.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY locks locks
RUN python3 -m venv /opt/potstill
RUN case "${SERVICE}" in student|teacher|learner) \
      /opt/potstill/bin/pip install ${TORCH_INDEX:+--extra-index-url "${TORCH_INDEX}"} \
        -r locks/torch.txt -c "locks/${SERVICE}.txt" ;; \
    esac
RUN /opt/potstill/bin/pip install --no-deps -r "locks/${SERVICE}.txt"
COPY deploy/docker/install.sh deploy/docker/install.sh
COPY pyproject.toml README.md LICENSE ./
COPY potstill potstill
COPY services services
COPY learner learner
RUN sh deploy/docker/install.sh "${SERVICE}"

FROM ${BASE}
ARG SERVICE
LABEL org.opencontainers.image.title="potstill ${SERVICE}" org.opencontainers.image.licenses="Apache-2.0"
# A name for the number: some libraries ask who they run as.
RUN useradd --uid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin potstill \
 && install -d -o 10001 -g 10001 /artifacts /models
COPY --from=build /opt/potstill /opt/potstill
COPY deploy/docker/probe.py /opt/potstill/probe.py
# Nothing is written but /artifacts, /models and /tmp, so that the root can be read-only.
ENV PATH=/opt/potstill/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    SERVICE=${SERVICE} \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    POTSTILL_HOST=0.0.0.0 \
    POTSTILL_PORT=8080 \
    POTSTILL_ARTIFACTS=/artifacts
USER 10001:10001
WORKDIR /tmp
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=25s --start-period=600s --retries=3 \
  CMD ["/opt/potstill/bin/python", "/opt/potstill/probe.py", "/readyz"]
# The process takes the shell's place, and the signals are its own.
CMD exec potstill serve "${SERVICE}"
