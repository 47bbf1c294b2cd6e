"""Link graphs: the GPUs of one node and what joins each pair."""
