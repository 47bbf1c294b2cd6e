# One target per image: operator, extender, device-plugin, runtime. Each carries only its own part:
#   docker build --target operator --build-arg BASE_DIGEST=sha256:... -t kompakt-operator .
# BASE_IMAGE needs Python >= 3.11 with venv and pip; a tag may name something else tomorrow, so no base is taken without its digest.
# REVISION is the commit, for the label. What labels say is in /opt/kompakt/release as well: buildah's cache takes a LABEL for the
# same whatever its arguments are now, but no command.
# The test suite that numpy installs with itself, 16 MB, is left out.
# Each image lists what it adds to its base in /opt/kompakt/sbom.cdx.json (CycloneDX), made from what was really installed.
ARG BASE_IMAGE=docker.io/library/python:3.11-slim-bookworm
ARG BASE_DIGEST
ARG VERSION=0.1.0
ARG REVISION=unknown

FROM ${BASE_IMAGE}@${BASE_DIGEST} AS base

FROM base AS sbom
COPY requirements/sbom.txt /src/
RUN python3 -m venv /opt/sbom && /opt/sbom/bin/pip install --no-cache-dir --require-hashes -r /src/sbom.txt

FROM base AS wheels
COPY requirements/build.txt /src/requirements/
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --no-cache-dir --require-hashes -r /src/requirements/build.txt
COPY core /src/core
COPY client /src/client
COPY operator /src/operator
COPY extender /src/extender
COPY device-plugin /src/device-plugin
COPY runtime /src/runtime
RUN cd /src && /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation -w /wheels ./core ./client ./operator ./extender ./device-plugin ./runtime

FROM base AS operator-build
COPY requirements/operator.txt /src/
RUN python3 -m venv --without-pip /opt/kompakt && python3 -m pip --python /opt/kompakt/bin/python install --no-cache-dir --require-hashes -r /src/operator.txt
COPY --from=wheels /wheels /wheels
RUN python3 -m pip --python /opt/kompakt/bin/python install --no-cache-dir --no-deps --no-index --find-links /wheels kompakt-core kompakt-client kompakt-operator
COPY --from=sbom /opt/sbom /opt/sbom
RUN /opt/sbom/bin/cyclonedx-py environment --output-reproducible -o /opt/kompakt/sbom.cdx.json /opt/kompakt/bin/python

FROM base AS extender-build
COPY requirements/extender.txt /src/
RUN python3 -m venv --without-pip /opt/kompakt && python3 -m pip --python /opt/kompakt/bin/python install --no-cache-dir --require-hashes -r /src/extender.txt && find /opt/kompakt/lib -type d -name tests -prune -exec rm -r {} +
COPY --from=wheels /wheels /wheels
RUN python3 -m pip --python /opt/kompakt/bin/python install --no-cache-dir --no-deps --no-index --find-links /wheels kompakt-core kompakt-client kompakt-extender
COPY --from=sbom /opt/sbom /opt/sbom
RUN /opt/sbom/bin/cyclonedx-py environment --output-reproducible -o /opt/kompakt/sbom.cdx.json /opt/kompakt/bin/python

FROM base AS device-plugin-build
COPY requirements/device-plugin.txt /src/
RUN python3 -m venv --without-pip /opt/kompakt && python3 -m pip --python /opt/kompakt/bin/python install --no-cache-dir --require-hashes -r /src/device-plugin.txt && find /opt/kompakt/lib -type d -name tests -prune -exec rm -r {} +
COPY --from=wheels /wheels /wheels
RUN python3 -m pip --python /opt/kompakt/bin/python install --no-cache-dir --no-deps --no-index --find-links /wheels kompakt-core kompakt-client kompakt-device-plugin
COPY --from=sbom /opt/sbom /opt/sbom
RUN /opt/sbom/bin/cyclonedx-py environment --output-reproducible -o /opt/kompakt/sbom.cdx.json /opt/kompakt/bin/python

FROM base AS operator
COPY --from=operator-build /opt/kompakt /opt/kompakt
ARG VERSION
ARG REVISION
ARG BASE_IMAGE
ARG BASE_DIGEST
RUN echo "${VERSION} ${REVISION} ${BASE_IMAGE}@${BASE_DIGEST}" > /opt/kompakt/release
LABEL org.opencontainers.image.title="kompakt-operator" \
      org.opencontainers.image.description="runs TrainingJobs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}" \
      org.opencontainers.image.base.digest="${BASE_DIGEST}"
USER 65532:65532
ENTRYPOINT ["/opt/kompakt/bin/kompakt-operator"]

FROM base AS extender
COPY --from=extender-build /opt/kompakt /opt/kompakt
ARG VERSION
ARG REVISION
ARG BASE_IMAGE
ARG BASE_DIGEST
RUN echo "${VERSION} ${REVISION} ${BASE_IMAGE}@${BASE_DIGEST}" > /opt/kompakt/release
LABEL org.opencontainers.image.title="kompakt-extender" \
      org.opencontainers.image.description="scheduler extender and gang planner" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}" \
      org.opencontainers.image.base.digest="${BASE_DIGEST}"
USER 65532:65532
ENTRYPOINT ["/opt/kompakt/bin/kompakt-extender"]

# The device plugin talks to the kubelet's sockets, which only root may open; the chart drops every capability.
FROM base AS device-plugin
COPY --from=device-plugin-build /opt/kompakt /opt/kompakt
ARG VERSION
ARG REVISION
ARG BASE_IMAGE
ARG BASE_DIGEST
RUN echo "${VERSION} ${REVISION} ${BASE_IMAGE}@${BASE_DIGEST}" > /opt/kompakt/release
LABEL org.opencontainers.image.title="kompakt-device-plugin" \
      org.opencontainers.image.description="reports link graphs and hands out exact GPUs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}" \
      org.opencontainers.image.base.digest="${BASE_DIGEST}"
ENTRYPOINT ["/opt/kompakt/bin/kompakt-device-plugin"]

FROM base AS runtime-build
COPY --from=wheels /wheels /wheels
RUN python3 -m venv --without-pip /opt/list && python3 -m pip --python /opt/list/bin/python install --no-cache-dir --no-deps --no-index --find-links /wheels kompakt-runtime
COPY --from=sbom /opt/sbom /opt/sbom
RUN mkdir /opt/kompakt && /opt/sbom/bin/cyclonedx-py environment --output-reproducible -o /opt/kompakt/sbom.cdx.json /opt/list/bin/python
COPY runtime /src/runtime
RUN /src/runtime/assemble /payload

# The payload that an init container copies into the trainer's pod: pure Python, no third-party package.
FROM base AS runtime
COPY --from=runtime-build /opt/kompakt /opt/kompakt
COPY --from=runtime-build /payload /payload
ARG VERSION
ARG REVISION
ARG BASE_IMAGE
ARG BASE_DIGEST
RUN echo "${VERSION} ${REVISION} ${BASE_IMAGE}@${BASE_DIGEST}" > /opt/kompakt/release
LABEL org.opencontainers.image.title="kompakt-runtime" \
      org.opencontainers.image.description="payload of the start-up hook in training pods" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}" \
      org.opencontainers.image.base.digest="${BASE_DIGEST}"
USER 65532:65532
ENTRYPOINT ["/payload/install"]
