#!/usr/bin/env python3
"""Writes a GGUF file of the llama architecture as the folder that vLLM reads: its values in bf16, config and tokenizer.

    DIR/peers/vllm/bin/python bench/peers/hf_model.py MODEL.gguf OUT_DIR [--dtype bfloat16]

Weights are dequantised, so that both sides compute with the same ones up to the rounding to bf16. GGUF keeps the rows of Q
and K in the order of neighbouring RoPE pairs; here they go back to halves. Without an output matrix the embedding serves.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import torch
from gguf import GGUFReader, dequantize
from safetensors.torch import save_file

LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
       "output.weight": "lm_head.weight"}


def hf_name(name):
    if name in TOP:
        return TOP[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{LAYER[part]}.{kind}"


def halves(weight, heads):
    """[heads * (dim / 2, 2), columns] -> [heads * (2, dim / 2), columns]"""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def weights(reader, heads, dtype):
    tensors = {}
    for tensor in reader.tensors:
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        part = tensor.name.split(".")[-2]
        if part in heads:
            weight = halves(weight, heads[part])
        tensors[hf_name(tensor.name)] = weight.to(dtype).contiguous()
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    args = parser.parse_args()
    reader = GGUFReader(args.model)

    def field(key):
        return reader.fields[key].contents()
    if field("general.architecture") != "llama" or "rope_freqs.weight" in {t.name for t in reader.tensors}:
        sys.exit(f"{args.model}: only the llama architecture with plain RoPE can be converted")
    attention = {"attn_q": field("llama.attention.head_count"), "attn_k": field("llama.attention.head_count_kv")}
    tensors = weights(reader, attention, getattr(torch, args.dtype))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": args.dtype, "hidden_act": "silu",
        "hidden_size": field("llama.embedding_length"), "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": field("llama.block_count"), "num_attention_heads": attention["attn_q"],
        "num_key_value_heads": attention["attn_k"], "head_dim": field("llama.rope.dimension_count"),
        "rms_norm_eps": field("llama.attention.layer_norm_rms_epsilon"), "rope_theta": field("llama.rope.freq_base"),
        "max_position_embeddings": field("llama.context_length"), "tie_word_embeddings": "lm_head.weight" not in tensors,
        "vocab_size": len(tensors["model.embed_tokens.weight"]), "attention_bias": False, "mlp_bias": False,
    }
    for name in ("bos", "eos"):
        if f"tokenizer.ggml.{name}_token_id" in reader.fields:
            config[f"{name}_token_id"] = field(f"tokenizer.ggml.{name}_token_id")
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, args.out / "model.safetensors", metadata={"format": "pt"})
    (args.out / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    subprocess.run([sys.executable, pathlib.Path(__file__).resolve().parents[1] / "tokenizer_dir.py", args.model, args.out],
                   check=True)
    print(f"{args.out}: {len(tensors)} tensors in {args.dtype}")


if __name__ == "__main__":
    main()
