# A machine for `make demo`, `make test` and .ci/run: docker build -t tilewright . && docker run tilewright
FROM python:3.11-slim-bookworm

RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends g++ git make perl \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /tilewright
COPY . .
RUN make venv
ENV PATH=/tilewright/.venv/bin:$PATH
CMD ["make", "demo"]
