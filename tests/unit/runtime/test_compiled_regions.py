"""Where code of torch.compile stands in a model, and what keeps us out of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._functorch import config as functorch
from torch._inductor import config as inductor
from torch.utils.checkpoint import checkpoint

from kompakt_runtime.compiled import partitioner, values
from kompakt_runtime.compiled.operators import LASTS, TICKETS
from kompakt_runtime.config import RuntimeConfig, SiteOverride
from kompakt_runtime.library import Compression
from kompakt_runtime.scope.exclusions import exclude, uncompressed
from tests.support.runtime.compiling import compiled, dividing
from tests.support.turns import in_turn

# The compiler itself looks at .grad of a tensor that enters a compiled region in the middle of a model.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
ROOT = Path(__file__).parents[3]


class Block(nn.Module):
    """The product of the first is read by the gradient of the second's weight only."""

    def __init__(self, breaks: bool = False) -> None:
        super().__init__()
        self.up, self.down, self.breaks = nn.Linear(16, 48), nn.Linear(48, 16), breaks

    def forward(self, x):
        h = self.down(self.up(x))
        if self.breaks:
            torch._dynamo.graph_break()
        return self.down(self.up(h)) if self.breaks else h


class Model(nn.Module):
    def __init__(self, blocks: int = 2, recompute: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks, self.recompute = nn.ModuleList(Block() for _ in range(blocks)), recompute
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(x)


def batch(seed: int) -> torch.Tensor:
    return torch.randn(24, 16, generator=torch.Generator().manual_seed(seed))


def trained(model, steps: int = 4) -> dict[str, torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        model(batch(step)).square().mean().backward()
        optimizer.step()
    return {name.replace("_orig_mod.", ""): weight.grad.clone() for name, weight in model.named_parameters()}


def off(ours, plain) -> float:
    return max(float((ours[name] - plain[name]).norm() / plain[name].norm()) for name in plain)


def layers(session) -> set[str]:
    return {name for name, row in session.figures.layers.items() if row.saved}


def by_block(model: Model) -> Model:
    for place, block in enumerate(model.blocks):
        model.blocks[place] = compiled(block)
    return model


def test_blocks_that_are_compiled_one_by_one_pack_and_so_does_what_is_eager(running):
    plain, session = trained(Model()), running()
    model = by_block(Model())
    assert 0 < off(trained(model), plain) < 0.05
    assert layers(session) == {"blocks.0.down", "blocks.1.down", "head"}
    assert not session.figures.raw["Compiled"]


def test_code_before_and_after_a_break_packs(running):
    torch.manual_seed(0)
    block = Block(breaks=True)
    plain = trained(block)
    session = running()
    torch.manual_seed(0)
    assert 0 < off(trained(compiled(Block(breaks=True))), plain) < 0.05
    assert session.figures.compressed == 2 * 4


def test_one_graph_for_all(running):
    plain, session = trained(Model()), running()
    assert 0 < off(trained(compiled(Model(), fullgraph=True)), plain) < 0.05
    assert layers(session) == {"blocks.0.down", "blocks.1.up", "blocks.1.down", "head"}


def test_what_is_computed_again_is_not_packed(running):
    plain, session = trained(Model()), running()
    assert off(trained(compiled(Model(recompute=True))), plain) < 0.05
    assert "blocks.0.down" not in layers(session)


def test_narrow_types_under_autocast(running):
    plain = trained(Model())
    session = running()

    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                return self.model(x).float()

    ours = {name.removeprefix("model."): value for name, value in trained(compiled(Cast())).items()}
    assert off(ours, plain) < 0.1
    assert "model.blocks.0.down" in layers(session)
    assert not [reason for reason in session.figures.raw if "Failed" in reason]


def test_while_compression_is_switched_off_code_gives_its_own_bits(running):
    plain, session, model = trained(compiled(Model())), running(), compiled(Model())
    session.figures.switched_off = True
    session._switch.look = lambda: None
    ours = trained(model)
    assert all(torch.equal(ours[name], plain[name]) for name in plain)
    assert not session.figures.compressed
    assert session.figures.raw["SwitchedOff"] == 4


def test_modules_with_another_mode_keep_what_they_save(running):
    session = running(overrides=(SiteOverride("blocks.1.down", "None"),))
    model = compiled(Model())
    trained(model)
    assert layers(session) == {"blocks.0.down", "blocks.1.up", "head"}
    assert session.figures.raw["ModeNone"] == 4


def test_a_value_that_cannot_be_packed_is_counted_and_training_goes_on(running, monkeypatch):
    plain, session = trained(compiled(Model())), running()

    def fails(*_, **__):
        raise RuntimeError("no")

    monkeypatch.setattr(values, "encode", fails)
    ours = trained(compiled(Model()))
    assert all(torch.equal(ours[name], plain[name]) for name in plain)
    assert session.figures.raw["PackFailedRuntimeError"] == 4 * 4


def test_a_budget_of_the_compilers_own_and_its_graphs_of_the_device_come_first():
    assert partitioner.obstacle() == ""
    with functorch.patch(activation_memory_budget=0.5):
        assert partitioner.obstacle() == partitioner.MEMORY_BUDGET
    with inductor.patch({"triton.cudagraphs": True}):
        assert partitioner.obstacle() == partitioner.CUDA_GRAPHS


@functorch.patch(activation_memory_budget=0.5)
def test_what_stands_in_the_way_is_told_for_each_region(running):
    said = []
    running()
    given = TICKETS.given
    trained(torch.compile(Model(), backend=dividing(said.append)), steps=2)
    assert said == [partitioner.MEMORY_BUDGET]
    assert TICKETS.given == given


def test_a_users_own_partitioner_stays(running):
    own = object()
    session = running()
    with inductor.patch(custom_partitioner_fn=own):
        trained(torch.compile(Model(), backend="aot_eager"), steps=2)
        assert inductor.custom_partitioner_fn is own
    assert session.figures.raw[partitioner.OWN_PARTITIONER] == 2
    assert session.figures.raw["Compiled"] == 2


def test_with_the_session_the_compilers_settings_end(running):
    session = running()
    trained(compiled(Model()), steps=1)
    assert inductor.custom_partitioner_fn is not None
    session.stop()
    assert inductor.custom_partitioner_fn is None


SCRIPT = """
import json, sys, torch
from torch import nn
from kompakt_runtime.compiled import partitioner
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.session import Session

divided, calls = partitioner.divided, []
def noted(*arguments):
    calls.append(1)
    return divided(*arguments)
from kompakt_runtime.compiled import custom
custom.divided = noted

def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=1, use_cache=False,
                                        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32))

def llama_loss(model, drawn):
    ids = torch.randint(0, 64, (2, 32), generator=drawn)
    return model(input_ids=ids, labels=ids).loss

def convolutions():
    layers = nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 8, 1)
    return nn.Sequential(*layers)

def convolutions_loss(model, drawn):
    return model(torch.randn(8, 3, 16, 16, generator=drawn)).square().mean()

make, loss_of = globals()[sys.argv[1]], globals()[sys.argv[1] + "_loss"]

def trained(compile):
    torch.manual_seed(0)
    model = make()
    code, optimizer = compile(model), torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(code, torch.Generator().manual_seed(step)).backward()
        optimizer.step()
    return {name: weight.grad for name, weight in model.named_parameters()}

session = Session(RuntimeConfig("ErrorBounded", min_tensor_bytes=0))
session.start()
ours = trained(torch.compile)
session.stop()
plain = trained(lambda model: model)
figures = session.figures
print(json.dumps({
    "off": max(float((ours[name] - plain[name]).norm() / plain[name].norm()) for name in plain),
    "layers": sorted(name for name, row in figures.layers.items() if row.saved),
    "compressed": figures.compressed, "divided": len(calls), "raw": dict(figures.raw),
    "hits": torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"],
    "packed": sum(row.plain for row in figures.layers.values()) / sum(row.saved for row in figures.layers.values()),
}))
"""


@in_turn(0)
def test_a_second_process_takes_graphs_from_the_compilers_cache_and_packs_alike(tmp_path):
    pytest.importorskip("transformers")
    first, second = (by_inductor("llama", tmp_path) for _ in range(2))
    assert first["divided"] == 1
    assert (second["divided"], second["hits"] > 0) == (0, True)
    for found in (first, second):
        assert 0 < found["off"] < 0.05
        linear = [name for name in found["layers"] if "[" not in name]
        assert linear == ["model.layers.0.self_attn.v_proj"], "operands of the others are made again"
        assert {"attention", "norm", "pointwise"} <= {name.split("[")[1].rstrip("]") for name in found["layers"] if "[" in name}
        assert found["raw"] == {}
        assert found["packed"] > 2
    assert first["compressed"] == second["compressed"] == 4 * len(first["layers"])


@in_turn(1)
def test_weights_that_the_compiler_lays_out_anew_are_known(tmp_path):
    """It hands convolutions copies of their weights, channels last."""
    found = by_inductor("convolutions", tmp_path)
    assert (found["layers"], found["compressed"], found["raw"]) == (["2", "4"], 2 * 4, {})
    assert 0 < found["off"] < 0.05


def by_inductor(model: str, folder: Path) -> dict:
    """What the script says of itself, with the code generator of torch behind it."""
    environ = {
        "PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder), "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "runtime"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, model], env=environ, capture_output=True, text=True, timeout=550, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_model_that_compiles_itself_packs(running):
    plain, session, model = trained(Model()), running(), Model()
    model.compile(backend=dividing())
    assert 0 < off(trained(model), plain) < 0.05
    assert layers(session) == {"blocks.0.down", "blocks.1.up", "blocks.1.down", "head"}
    assert session.figures.forwards == 4
    assert [site.steps for site in session.sites] == [4] * 4


def test_a_compiled_function_that_calls_a_model_packs(running):
    plain, session, model = trained(Model()), running(), Model()

    @torch.compile(backend=dividing())
    def loss_of(x):
        return model(x).square().mean()

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(batch(step)).backward()
        optimizer.step()
    ours = {name: weight.grad for name, weight in model.named_parameters()}
    assert 0 < off(ours, plain) < 0.05
    assert layers(session) == {"blocks.0.down", "blocks.1.up", "blocks.1.down", "head", "head [pointwise]"}  # it has the loss too


def test_a_region_in_an_eager_model_packs_and_is_counted_once(running):
    model = Model()
    kept = plain_bytes_of(running, model)
    session = running()
    region = Model()
    region.blocks[0].compile(backend=dividing())
    trained(region)
    assert layers(session) == {"blocks.0.down", "blocks.1.up", "blocks.1.down", "head"}
    assert session.figures.plain_bytes == pytest.approx(kept, rel=0.05)


def plain_bytes_of(running, model) -> int:
    session = running(activation_gradients="Exact")
    trained(model)
    session.stop()
    return session.figures.plain_bytes


def test_a_context_around_each_pass_makes_no_new_code():
    compression = Compression(RuntimeConfig("ErrorBounded", min_tensor_bytes=0))
    model = Model()
    with compression:
        model.compile(backend=dividing())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(4):
        with compression:
            loss = model(batch(step)).square().mean()
        loss.backward()
        optimizer.step()
    compression.close()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert {row.name for row in compression.report().layers} == {"blocks.0.down", "blocks.1.up", "blocks.1.down", "head"}


def test_what_is_kept_out_stays_out(running):
    model = Model()
    exclude(model.blocks[1])
    session = running()
    trained(compiled(model))
    assert layers(session) == {"blocks.0.down", "head"}
    session.stop()
    session, model = running(), compiled(Model())
    with uncompressed():
        trained(model)
    assert layers(session) == set()
    assert session.figures.raw["ModeNone"] == 4 * 4


@pytest.mark.parametrize("hooks", ["save_on_cpu", "clone"])
def test_hooks_that_copy_get_every_bit(running, hooks):
    def around():
        if hooks == "clone":
            return torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t)
        return torch.autograd.graph.save_on_cpu()

    model = Model()
    model(batch(0)).square().mean().backward()
    plain = [weight.grad.clone() for weight in model.parameters()]
    session = running(overrides=(SiteOverride("head", "None"),))
    by_block(model)
    for _ in range(3):
        model.zero_grad()
        with around():
            loss = model(batch(0)).square().mean()
        loss.backward()
        assert all(torch.equal(weight.grad, before) for weight, before in zip(model.parameters(), plain, strict=True))
        assert len(TICKETS) == 0, "what was read by all is gone"
    assert session.figures.raw["UserHooks"] >= 3
    assert not session.figures.compressed
    with around():
        model(batch(0))
    assert len(TICKETS) > 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for _ in range(LASTS):
        optimizer.step()
    assert len(TICKETS) > 0
    optimizer.step()
    assert len(TICKETS) == 0, "a loss that was dropped"


def test_a_checkpoint_around_compiled_code_leaves_nothing(running):
    plain, session, model = trained(Model()), running(), by_block(Model(recompute=True))
    assert off(trained(model), plain) < 0.05
    assert not [reason for reason in session.figures.raw if "Failed" in reason]
    assert len(TICKETS) == 0


def test_what_was_compiled_before_a_session_packs_in_it(running):
    model = Model()
    model.compile()
    session = running()
    assert inductor.custom_partitioner_fn is not None
    session.stop()
    assert inductor.custom_partitioner_fn is None


def test_sessions_in_each_other_and_in_turn(running):
    theirs = torch.compile
    first = running()
    ours = torch.compile
    second = running(target=0.02)
    assert torch.compile is ours is not theirs
    inner = compiled(Model())
    trained(inner, steps=1)
    assert layers(second)
    assert not layers(first)
    second.stop()
    trained(inner, steps=1)
    assert layers(first)
    first.stop()
    assert torch.compile is theirs
    assert TICKETS.keeper is None
    ours(lambda x: x)  # somebody kept it
    assert inductor.custom_partitioner_fn is None


def test_what_others_put_in_place_of_torch_compile_stays(running, monkeypatch):
    session = running(mode="Lossless")
    monkeypatch.setattr(torch, "compile", other := object())
    session.stop()
    assert torch.compile is other


def test_a_weight_that_no_module_has_keeps_what_its_gradient_is_made_of(running):
    session = running()
    weights = [torch.randn(16, 16, generator=torch.Generator().manual_seed(seed)).requires_grad_() for seed in range(3)]

    @torch.compile(backend=dividing())
    def loss_of(x):
        for weight in weights:
            x = x @ weight
        return x.square().mean()

    loss_of(batch(0)).backward()
    ours = [weight.grad.clone() for weight in weights]
    session.stop()
    for weight in weights:
        weight.grad = None
    loss_of(batch(0)).backward()
    assert all(torch.equal(weight.grad, grad) for weight, grad in zip(weights, ours, strict=True))
    assert session.figures.raw["CompiledNoParameter"] == 2
