"""Work that takes long, in processes beside the one that serves the verbs."""
