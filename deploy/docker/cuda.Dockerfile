# One process on CUDA, on the official vLLM image: student, teacher or learner. They share its layers on a node.
ARG BASE

FROM ${BASE} AS build
ARG SERVICE
USER root
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY locks locks
# torch and vLLM are the base's; what the locks pin comes before what the base has.
RUN python3 -m venv --system-site-packages /opt/potstill \
 && /opt/potstill/bin/python -m pip install --no-deps --ignore-installed -r "locks/${SERVICE}.txt"
COPY deploy/docker/install.sh deploy/docker/check_base.py deploy/docker/
COPY pyproject.toml README.md LICENSE ./
COPY potstill potstill
COPY services services
COPY learner learner
RUN /opt/potstill/bin/python deploy/docker/check_base.py \
 && sh deploy/docker/install.sh "${SERVICE}"

FROM ${BASE}
ARG SERVICE
LABEL org.opencontainers.image.title="potstill ${SERVICE} (cuda)" org.opencontainers.image.licenses="Apache-2.0"
USER root
RUN useradd --uid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin potstill \
 && install -d -o 10001 -g 10001 /artifacts /models
COPY --from=build /opt/potstill /opt/potstill
COPY deploy/docker/probe.py /opt/potstill/probe.py
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
HEALTHCHECK --interval=10s --timeout=25s --start-period=1800s --retries=3 \
  CMD ["/opt/potstill/bin/python", "/opt/potstill/probe.py", "/readyz"]
ENTRYPOINT []
CMD exec potstill serve "${SERVICE}"
