"""A small Llama with random weights learns Python's own source code byte by byte, with the Trainer of Transformers."""

import os
from pathlib import Path

import torch
from torch.utils.data import TensorDataset, random_split
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

LENGTH = 128


def source_code(pieces: int) -> TensorDataset:
    """So many pieces of the modules beside `os`, each LENGTH bytes long."""
    text = b"".join(path.read_bytes() for path in sorted(Path(os.__file__).parent.glob("[a-c]*.py")))
    return TensorDataset(torch.frombuffer(bytearray(text[: pieces * LENGTH]), dtype=torch.uint8).long().view(-1, LENGTH))


def as_batch(rows: list) -> dict[str, torch.Tensor]:
    tokens = torch.stack([row[0] for row in rows])
    return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    set_seed(0)
    config = LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=LENGTH,
    )  # fmt: skip
    train, test = random_split(source_code(2000), [1800, 200])
    arguments = TrainingArguments(
        "/tmp/llama", max_steps=30, per_device_train_batch_size=8, learning_rate=3e-3, logging_steps=10, seed=0,
        save_strategy="no", report_to="none", disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(LlamaForCausalLM(config), arguments, as_batch, train_dataset=train, eval_dataset=test)
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]
    if trainer.is_world_process_zero():
        print(f"test loss {loss:.4f}")


if __name__ == "__main__":
    main()
