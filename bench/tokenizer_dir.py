"""Writes the tokenizer of a GGUF file as a folder that Hugging Face's tools read, for load generators without a network.

    pip install tokenizers gguf
    python3 bench/tokenizer_dir.py MODEL.gguf OUT_DIR

`engine/text/testing/compare_with_tokenizers.py` holds our own tokenizer against what is written here.
"""
import argparse
import json
import pathlib
import sys

from gguf import GGUFReader

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "engine/text/testing"))
from compare_with_tokenizers import reference  # noqa: E402  pylint: disable=wrong-import-position


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    args = parser.parse_args()
    fields = GGUFReader(args.model).fields

    def field(key):
        return fields["tokenizer.ggml." + key].contents()
    tokenizer, _ = reference(field)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    tokens = field("tokens")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    for name in ("bos", "eos"):
        if f"tokenizer.ggml.{name}_token_id" in fields:
            config[f"{name}_token"] = tokens[field(f"{name}_token_id")]
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    print(f"{out}: {len(tokens)} tokens")


if __name__ == "__main__":
    main()
