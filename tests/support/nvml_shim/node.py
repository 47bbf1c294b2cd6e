"""The node whose machine the shim describes."""

NODE = {"metadata": {"name": "node-1"}}
