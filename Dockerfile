# One image for the load (Locust master and workers) and for the simulated server. The base is any Debian-like
# image with Python 3.11 or newer: docker build --build-arg PYTHON_IMAGE=python:3.13-slim-bookworm .
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
FROM ${PYTHON_IMAGE}

ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

COPY requirements.txt /opt/requirements.txt
RUN python3 -m venv /opt/venv \
    && pip install --no-cache-dir --disable-pip-version-check -r /opt/requirements.txt

# .dockerignore names what comes along. It must be readable for whatever user the run's folder belongs to.
WORKDIR /suite
COPY . .
RUN chmod -R a+rX . && mkdir runs && chmod 1777 runs

ENV LOCUST_LOCUSTFILE=locustfiles/chat.py
USER 1000:1000
ENTRYPOINT ["locust"]
