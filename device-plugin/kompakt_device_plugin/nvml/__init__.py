"""NVML as a source of link graphs: what the driver says of GPUs, links and health, through nvidia-ml-py."""
