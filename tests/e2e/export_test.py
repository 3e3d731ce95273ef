#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Diffusers opens what `limbeck export` and `limbeck import` write, with equal outputs.

A small model in a pipeline is trained for a step, and its checkpoint exported; the truth is what
PyTorch reads from the checkpoint. Another one is saved by PyTorch, sharded by FSDP2, under the names
that FastVideo trains with, and imported; the truth is that model.

Runs in .interop/ (scripts/setup --interop); exits with 77, skipped, where there is none, or none with
accelerate, without which Diffusers opens no model of this kind.

usage: export_test.py PROGRAM
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = {
    "num_attention_heads": 2,
    "attention_head_dim": 12,
    "in_channels": 4,
    "out_channels": 4,
    "text_dim": 32,
    "freq_dim": 256,
    "ffn_dim": 48,
    "num_layers": 2,
}
# Published part of a name -> that of FastVideo's training, the first that is found.
TRAINED = [
    ("patch_embedding.", "patch_embedding.proj."),
    ("text_embedder.linear_1.", "text_embedder.fc_in."),
    ("text_embedder.linear_2.", "text_embedder.fc_out."),
    ("time_embedder.linear_1.", "time_embedder.mlp.fc_in."),
    ("time_embedder.linear_2.", "time_embedder.mlp.fc_out."),
    ("time_proj.", "time_modulation.linear."),
    ("attn1.to_out.0.", "to_out."),
    ("attn1.", ""),
    ("attn2.to_out.0.", "attn2.to_out."),
    ("ffn.net.0.proj.", "ffn.fc_in."),
    ("ffn.net.2.", "ffn.fc_out."),
    (".norm2.", ".self_attn_residual_norm.norm."),
]


def check(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


def limbeck(program, *arguments, code=0):
    done = subprocess.run(
        [program, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    text = done.stdout + done.stderr
    check(done.returncode == code, f"limbeck {arguments} ended with {done.returncode}:\n{text}")
    return text


def trained_name(name):
    for published, trained in TRAINED:
        if published in name:
            return name.replace(published, trained, 1)
    return name


def make_model(seed):
    import torch
    from diffusers import WanTransformer3DModel

    torch.manual_seed(seed)
    model = WanTransformer3DModel(**OPTIONS).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.1)
    return model


def output_of(model):
    import torch

    random = torch.Generator().manual_seed(5)
    with torch.no_grad():
        return model(
            hidden_states=torch.randn(1, 4, 2, 4, 6, generator=random),
            timestep=torch.tensor([500]),
            encoder_hidden_states=torch.randn(1, 7, 32, generator=random),
            return_dict=False,
        )[0]


def check_equal(folder, model, what):
    import torch
    from diffusers import WanTransformer3DModel

    loaded = WanTransformer3DModel.from_pretrained(folder).eval()
    theirs = loaded.state_dict()
    for name, tensor in model.state_dict().items():
        check(torch.equal(theirs.pop(name), tensor), f"{what}: {name} differs")
    check(not theirs, f"{what}: unexpected {list(theirs)}")
    # What is loaded lies in memory as the file has it, by which PyTorch chooses among kernels that
    # round differently. In memory of its own the same model gives the same bits.
    expected = output_of(model)
    check(torch.allclose(output_of(loaded), expected, atol=1e-6), f"{what}: outputs differ")
    again = WanTransformer3DModel.from_config(loaded.config).eval()
    again.load_state_dict(loaded.state_dict())
    check(torch.equal(output_of(again), expected), f"{what}: outputs differ in their bits")


def check_rounded(folder, model, dtype):
    import torch
    from safetensors.torch import load_file

    loaded = load_file(folder / "diffusion_pytorch_model.safetensors")
    for name, tensor in model.state_dict().items():
        check(torch.equal(loaded[name], tensor.to(dtype)), f"{name} is not rounded as torch does")


def make_pipeline(folder):
    """Another model's weights in it, and a VAE that is only carried along."""
    make_model(1).save_pretrained(folder / "transformer")
    (folder / "vae").mkdir()
    (folder / "vae/config.json").write_text('{"_class_name": "AutoencoderKLWan"}')
    index = {
        "_class_name": "WanPipeline",
        "transformer": ["diffusers", "WanTransformer3DModel"],
        "vae": ["diffusers", "AutoencoderKLWan"],
    }
    (folder / "model_index.json").write_text(json.dumps(index))


def train(program, folder, base):
    """A step from the base's weights, saved; the model that PyTorch reads out of the checkpoint."""
    import torch.distributed.checkpoint as dcp

    data = folder / "data"
    limbeck(
        program,
        *["train", "configs/quickstart-judge.toml", "--override-output-dir", folder / "judge"],
        *["--set", "training.loop.max_train_steps=1"],
        *["--set", f'callbacks.parquet_writer.data_path="{data}"'],
    )
    limbeck(
        program,
        *["train", "tests/e2e/tiny_sft.toml", "--override-output-dir", folder / "run"],
        *["--set", f'training.data.data_path="{data}"', "--set", "training.loop.max_train_steps=1"],
        *["--set", "training.checkpoint.training_state_checkpointing_steps=1"],
        *["--set", f'models.student.init_from="{base}"'],
    )
    model = make_model(2)
    state = {f"roles.student.transformer.{k}": v for k, v in model.state_dict().items()}
    dcp.load(state, checkpoint_id=folder / "run/checkpoint-1/dcp", no_dist=True)
    return model


def save_odd(folder):
    """Parameters that are transposed, a part of a larger one, or one under two names."""
    import torch
    import torch.distributed.checkpoint as dcp

    whole = torch.randn(6, 5)
    state = {
        "model.tied.a": whole,
        "model.tied.b": whole,
        "model.transposed": torch.randn(3, 4).t(),
        "model.part": whole[1:3, 2:4],
    }
    dcp.save(state, checkpoint_id=folder, no_dist=True)
    return {name.removeprefix("model."): tensor for name, tensor in state.items()}


def check_odd(program, folder):
    import torch
    from safetensors.torch import load_file

    state = save_odd(folder / "odd")
    arguments = ["import", folder / "odd", "--role", "any", "--prefix", "model.", "--verify"]
    limbeck(program, *arguments, "--output-dir", folder / "plain")
    loaded = load_file(folder / "plain/diffusion_pytorch_model.safetensors")
    check(set(loaded) == set(state), f"names of odd parameters: {list(loaded)}")
    for name, tensor in state.items():
        check(torch.equal(loaded[name], tensor), f"{name} is not what was saved")


def save_as_trained(rank, ranks, folder):
    """FastVideo's names, cut by FSDP2 over two processes, with an optimizer's state beside."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    store = dist.FileStore(f"{folder}.store", ranks)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=store)
    model = make_model(2)
    fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
    state = {}
    for name, tensor in model.state_dict().items():
        state[f"roles.student.transformer.{trained_name(name)}"] = tensor
        key = f"optimizers.student.state.transformer.{trained_name(name)}"
        state[f"{key}.exp_avg"] = torch.zeros_like(tensor)
        state[f"{key}.step"] = torch.tensor(3.0)
        state[f"optimizers.student.param_groups.{name}.betas"] = (0.9, 0.999)
    dcp.save(state, checkpoint_id=folder / "dcp")
    dist.destroy_process_group()


def main():
    interop = ROOT / ".interop/bin/python"
    if not interop.exists():
        print("skipped: there is no .interop/; scripts/setup --interop makes it")
        return SKIPPED
    if pathlib.Path(sys.prefix).resolve() != interop.parents[1].resolve():
        os.execv(interop, [str(interop), "-W", "ignore", *sys.argv])
    if importlib.util.find_spec("accelerate") is None:
        print("skipped: .interop/ has no accelerate; scripts/setup --interop adds it")
        return SKIPPED
    import torch
    import torch.multiprocessing as mp

    torch.set_num_threads(1)
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_pipeline(folder / "base")
        model = train(program, folder, folder / "base")
        exported = folder / "exported"
        export = ["export", folder / "run", "--role", "student", "--verify"]
        limbeck(program, *export, "--output-dir", exported)
        check((exported / "vae/config.json").exists(), "the pipeline's other parts are there")
        check_equal(exported / "transformer", model, "export")
        half = folder / "half"
        limbeck(program, *export, "--output-dir", half, "--dtype", "bf16")
        check_rounded(half / "transformer", model, torch.bfloat16)

        trained, imported = folder / "trained", folder / "imported"
        mp.start_processes(save_as_trained, (2, trained), nprocs=2, start_method="fork")
        text = limbeck(
            program,
            *["import", trained, "--role", "student", "--output-dir", imported, "--verify"],
            *["--type", "wan", "--base", folder / "base"],
        )
        check("left aside: optimizers.student" in text, "what was left aside is said")
        check_equal(imported / "transformer", make_model(2), "import")
        check_odd(program, folder)
        # One step later the base's weights are others.
        diff = ["inspect", "--diff", exported / "transformer", folder / "base/transformer"]
        check("of other values" in limbeck(program, *diff, code=1), "the base differs")
    print("Diffusers opens what limbeck exports and imports, with equal outputs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
