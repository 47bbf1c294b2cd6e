"""The training script of a library, unmodified, under `kompakt-run`; `python -m benchmarks.unmodified_script --compare 12`.

Makes a small Llama of random weights, a tokenizer and a text data set (Python's standard library) in a temporary folder, and lets
`trl/scripts/sft.py` of the installed trl, which trains with the Trainer of Transformers, train on them. Options are those of
`kompakt-run`; needs trl, datasets, accelerate and transformers (tried with 1.16.0, 5.2.0, 1.15.0 and 5.23.0).
"""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

VOCABULARY: Final = 4096
CHARACTERS: Final = 2000  # of one example
STEPS: Final = 20
TRAINING: Final = {
    "--max_length": "256", "--per_device_train_batch_size": "4", "--max_steps": str(STEPS), "--learning_rate": "5e-4",
    "--dtype": "float32", "--bf16": "false", "--gradient_checkpointing": "false", "--logging_steps": "4", "--seed": "1",
    "--report_to": "none", "--save_strategy": "no",
}  # fmt: skip


def texts() -> list[str]:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:120]
    return [path.read_text(errors="ignore") for path in files]


def make_data(folder: Path, found: list[str]) -> None:
    parts = [text[start : start + CHARACTERS] for text in found for start in range(0, len(text), CHARACTERS)]
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps({"text": part}) + "\n" for part in parts))


def make_model(folder: Path, found: list[str]) -> None:
    """Llama of 8 layers, 256 wide, 7.9 million parameters."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(models.BPE())
    words.pre_tokenizer, words.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<pad>", "<eos>"], initial_alphabet=alphabet)
    words.train_from_iterator(found, trainer)
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>").save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 8, "num_attention_heads": 4}
    names = {"vocab_size": VOCABULARY, "max_position_embeddings": 512, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}
    LlamaForCausalLM(LlamaConfig(num_key_value_heads=2, **shape, **names)).save_pretrained(folder)


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder, found = Path(name), texts()
        make_data(folder / "data", found)
        make_model(folder / "model", found)
        places = {"--model_name_or_path": "model", "--dataset_name": "data", "--output_dir": "out"}
        given = {**{option: str(folder / place) for option, place in places.items()}, **TRAINING}
        words = [sys.executable, "-m", "trl.scripts.sft", "--use_cpu", *(word for pair in given.items() for word in pair)]
        environ = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        return subprocess.call(
            [sys.executable, "-m", "kompakt_runtime.launch.kompakt_run", *sys.argv[1:], "--", *words], env=environ
        )


if __name__ == "__main__":
    sys.exit(main())
