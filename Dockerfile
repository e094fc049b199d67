# syntax=docker/dockerfile:1
# The command line of opsetta, with PyTorch for CPUs.
#   docker build -t opsetta .
#   docker run --rm -v "$PWD:/work" opsetta export model.py:make --opset 12 -o model.onnx --verify
# Files that it writes belong to user 1000; give --user "$(id -u):$(id -g)" if yours is another.

FROM python:3.12-slim AS build
WORKDIR /source
COPY . .
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /wheel

FROM python:3.12-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY constraints.txt /tmp/constraints.txt
RUN --mount=from=build,source=/wheel,target=/wheel \
    pip install --no-cache-dir --constraint /tmp/constraints.txt --extra-index-url "$TORCH_INDEX" \
        "opsetta[all] @ file://$(echo /wheel/*.whl)" \
    && useradd --create-home --uid 1000 opsetta
ENV HOME=/tmp
USER opsetta
WORKDIR /work
ENTRYPOINT ["opsetta"]
CMD ["--help"]
