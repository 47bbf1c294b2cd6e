# One target per image: operator, extender, device-plugin, runtime. Each carries only its own part:
#   docker build --target operator -t kompakt-operator .
# BASE_IMAGE needs Python >= 3.11 with venv and pip.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS wheels
COPY requirements/build.txt /src/requirements/
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --no-cache-dir --require-hashes -r /src/requirements/build.txt
COPY core /src/core
COPY operator /src/operator
COPY extender /src/extender
COPY device-plugin /src/device-plugin
RUN cd /src && /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation -w /wheels ./core ./operator ./extender ./device-plugin

FROM ${BASE_IMAGE} AS operator-build
COPY requirements/operator.txt /src/
RUN python3 -m venv /opt/kompakt && /opt/kompakt/bin/pip install --no-cache-dir --require-hashes -r /src/operator.txt
COPY --from=wheels /wheels /wheels
RUN /opt/kompakt/bin/pip install --no-cache-dir --no-deps --no-index --find-links /wheels kompakt-core kompakt-operator

FROM ${BASE_IMAGE} AS extender-build
COPY requirements/extender.txt /src/
RUN python3 -m venv /opt/kompakt && /opt/kompakt/bin/pip install --no-cache-dir --require-hashes -r /src/extender.txt
COPY --from=wheels /wheels /wheels
RUN /opt/kompakt/bin/pip install --no-cache-dir --no-deps --no-index --find-links /wheels kompakt-core kompakt-extender

FROM ${BASE_IMAGE} AS device-plugin-build
COPY requirements/device-plugin.txt /src/
RUN python3 -m venv /opt/kompakt && /opt/kompakt/bin/pip install --no-cache-dir --require-hashes -r /src/device-plugin.txt
COPY --from=wheels /wheels /wheels
RUN /opt/kompakt/bin/pip install --no-cache-dir --no-deps --no-index --find-links /wheels kompakt-core kompakt-device-plugin

FROM ${BASE_IMAGE} AS operator
COPY --from=operator-build /opt/kompakt /opt/kompakt
USER 65532:65532
ENTRYPOINT ["/opt/kompakt/bin/kompakt-operator"]

FROM ${BASE_IMAGE} AS extender
COPY --from=extender-build /opt/kompakt /opt/kompakt
USER 65532:65532
ENTRYPOINT ["/opt/kompakt/bin/kompakt-extender"]

# The device plugin talks to the kubelet's sockets, which only root may open; the chart drops every capability.
FROM ${BASE_IMAGE} AS device-plugin
COPY --from=device-plugin-build /opt/kompakt /opt/kompakt
ENTRYPOINT ["/opt/kompakt/bin/kompakt-device-plugin"]

# The payload that an init container copies into the trainer's pod: pure Python, no third-party package.
FROM ${BASE_IMAGE} AS runtime
COPY runtime /src/runtime
RUN /src/runtime/assemble /payload && rm -r /src
USER 65532:65532
ENTRYPOINT ["/payload/install"]
