# docker build --build-arg EXTRAS=gpu,gcs -t dawnjax:gpu .
# EXTRAS: `gpu` (CUDA 13 comes with jax's wheels; the host needs NVIDIA's driver and container
# toolkit), `tpu`, or nothing for CPUs.
ARG PYTHON=3.12
FROM python:${PYTHON}-slim
ARG EXTRAS=
RUN useradd --create-home user
COPY . /opt/dawnjax
RUN pip install --no-cache-dir "/opt/dawnjax${EXTRAS:+[$EXTRAS]}"
USER user
WORKDIR /home/user
# A signal reaches the run itself, which then saves.
ENTRYPOINT ["dawnjax"]
CMD ["list"]
