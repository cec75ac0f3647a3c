"""Chat templates and token ids against what Hugging Face makes of them.

The real templates of many models and random ones, rendered by our interpreter (build/tests/render_dump) and by jinja2, must be
equal byte for byte; token ids must be those of PyPI's tokenizers, built from the same vocabulary. SLUICE_SEED=N repeats a run.
"""
import copy
import html
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
import warnings

import chat_conversations
import gguf_metadata
import jinja_random
import jinja_reference
import template_corpus

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build"))
MODEL = os.environ.get("SLUICE_TEST_MODEL") or str(template_corpus.cache() / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
SEED = int(os.environ.get("SLUICE_SEED") or random.SystemRandom().randrange(1 << 32))
BOS, EOS = "<s>", "</s>"

sys.path.insert(0, str(ROOT / "engine/text/testing"))
import compare_with_tokenizers  # noqa: E402  pylint: disable=wrong-import-position


def lines_of(command, requests):
    """One JSON line in, one out, through files: neither side waits for the other."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        file.writelines(json.dumps(request) + "\n" for request in requests)
        file.seek(0)
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, encoding="utf-8", check=False, timeout=600)
    assert done.returncode == 0, f"{command}: exit {done.returncode}: {done.stderr[-2000:]}"
    answers = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    assert len(answers) == len(requests)
    return answers


def render_ours(requests, model=None):
    return lines_of([BUILD / "tests/render_dump"] + (["--model", model] if model else []), requests)


def with_messages(conversation, change):
    return {**conversation, "messages": [change(copy.deepcopy(m)) for m in conversation["messages"]]}


def joined(message):
    if isinstance(message.get("content"), list):
        message["content"] = "\n".join(part["text"] for part in message["content"])
    return message


def text_for_null(message):
    if message.get("content") is None:
        message["content"] = ""
    return message


def text_arguments(message):
    for call in message.get("tool_calls", []):
        call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    return message


def one_part(message):
    if isinstance(message.get("content"), str):
        message["content"] = chat_conversations.text(message["content"])
    return message


# What Hugging Face's caller does for each of the models that are looked at closest.
PREPARED = {
    "smollm2": [joined, text_for_null],
    "qwen2.5": [joined],
    "llama3.1": [joined],
    "gemma3": [text_for_null],
    "deepseek-r1": [joined, text_arguments],
    "mistral": [joined],
}


# Adds to text that is `safe`, whereupon jinja2 escapes the rest for HTML; ours does not.
ESCAPED_FOR_HTML = {"llama-cpp-python/meetkai-functionary-medium-v3.1.jinja"}


class Reference:
    def __init__(self):
        self.env = jinja_reference.environment()
        self.compiled = {}

    def render(self, source, conversation, add_generation_prompt, bos=BOS, eos=EOS):
        """The text, or the exception."""
        if source not in self.compiled:
            self.compiled[source] = self.env.from_string(source)
        variables = {"messages": conversation["messages"], "tools": conversation.get("tools"), "documents": None,
                     "add_generation_prompt": add_generation_prompt, "bos_token": bos, "eos_token": eos}
        variables.update(conversation.get("template_arguments", {}))
        try:
            return self.compiled[source].render(**copy.deepcopy(variables))
        except Exception as error:  # pylint: disable=broad-exception-caught
            return error


def request_of(source, conversation, add_generation_prompt):
    return {"template": source, "bos": BOS, "eos": EOS, "now": jinja_reference.NOW,
            "add_generation_prompt": add_generation_prompt, **conversation}


def smollm2():
    return gguf_metadata.read(MODEL)["tokenizer.chat_template"]


class ChatTemplatesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        warnings.simplefilter("ignore")
        print(f"SLUICE_SEED={SEED}", flush=True)
        cls.templates = template_corpus.templates()
        cls.named = {name: cls.templates[path] for name, path in template_corpus.NAMED.items()}
        cls.named["smollm2"] = smollm2()
        cls.reference = Reference()
        rng = random.Random(SEED)
        cls.conversations = dict(chat_conversations.CONVERSATIONS)
        for _ in range(20):
            seed = rng.randrange(1 << 32)
            cls.conversations[f"random {seed}"] = chat_conversations.random_conversation(seed)

    def check(self, ours, expected, what):
        if isinstance(expected, jinja_reference.Raised):
            self.assertEqual(ours.get("error"), f"messages: {expected}", what)
        elif isinstance(expected, Exception):
            self.assertIn("error", ours, f"{what}: jinja2 says {expected!r}")
        else:
            self.assertEqual(ours.get("text", ours), expected, what)

    def test_named_models_byte_for_byte(self):
        cases = [(name, title, prompt) for name in PREPARED for title in self.conversations for prompt in (True, False)]
        ours = render_ours([request_of(self.named[name], self.conversations[title], prompt) for name, title, prompt in cases])
        texts = 0
        for (name, title, prompt), answer in zip(cases, ours):
            conversation = self.conversations[title]
            for change in PREPARED[name]:
                conversation = with_messages(conversation, change)
            expected = self.reference.render(self.named[name], conversation, prompt)
            self.check(answer, expected, f"{name}, {title}, add_generation_prompt={prompt}")
            texts += isinstance(expected, str)
        print(f"{len(cases)} prompts of {len(PREPARED)} models, {texts} of them with a text, equal")
        self.assertGreater(texts, len(cases) * 0.7)

    def test_all_templates_byte_for_byte(self):
        """As they stand, or prepared in one of the ways that templates need."""
        ways = [[], [joined], [joined, text_for_null], [joined, text_arguments], [joined, text_for_null, text_arguments], [one_part],
                [one_part, text_for_null], [text_for_null], [text_arguments]]
        cases = [(name, title, prompt) for name in self.templates for title in self.conversations for prompt in (True, False)]
        ours = render_ours([request_of(self.templates[n], self.conversations[t], p) for n, t, p in cases])
        texts, different = 0, []
        for (name, title, prompt), answer in zip(cases, ours):
            for way in ways:
                conversation = self.conversations[title]
                for change in way:
                    conversation = with_messages(conversation, change)
                expected = self.reference.render(self.templates[name], conversation, prompt)
                if name in ESCAPED_FOR_HTML and isinstance(expected, str):
                    expected = html.unescape(expected)
                if isinstance(expected, str) and answer.get("text") == expected:
                    texts += 1
                    break
                if isinstance(expected, Exception) and "error" in answer and not way:
                    break
            else:
                different.append((name, title, prompt, str(answer)[-300:]))
        print(f"{len(cases)} prompts of {len(self.templates)} templates, {texts} of them with a text, {len(different)} different")
        self.assertEqual(different, [])
        self.assertGreater(texts, len(cases) * 0.7)

    def test_the_templates_bytes_are_known(self):
        """Texts of a conversation that no template has: just these bytes are not the template's."""
        own = "\ue000\ue123\uf8ff"
        conversation = {"messages": [chat_conversations.system(own), chat_conversations.user(own), chat_conversations.assistant(own),
                                     chat_conversations.user(own)]}
        names = list(self.templates)
        ours = render_ours([request_of(self.templates[name], conversation, True) for name in names])
        looked_at = 0
        for name, answer in zip(names, ours):
            if "text" not in answer:
                continue
            looked_at += 1
            text, at = answer["text"].encode(), 0
            for begin, end in answer["spans"] + [[len(text), len(text)]]:
                self.assertEqual(text[at:begin].decode().strip("\ue000\ue123\uf8ff"), "", name)
                self.assertNotRegex(text[begin:end].decode(), "[\ue000\ue123\uf8ff]", name)
                at = end
        self.assertGreater(looked_at, len(names) * 0.8)

    def test_random_templates_byte_for_byte(self):
        count = int(os.environ.get("SLUICE_TEST_TEMPLATES") or 600)
        env = jinja_reference.environment()

        def works(expression):
            try:
                env.from_string("{% set ns = namespace(a=1) %}{{ " + expression + " }}").render(
                    w="W x", q=[1, "q"], **copy.deepcopy(jinja_random.VARIABLES))
                return True
            except Exception:  # pylint: disable=broad-exception-caught
                return False

        source = jinja_random.Source(SEED, works)
        templates = [source.template() for _ in range(count)]
        templates += ["{{ " + source.expression(source.pick([0, 1, 2])) + " }}" for _ in range(5 * count)]
        ours = render_ours([{"template": t, "variables": jinja_random.VARIABLES, "now": jinja_reference.NOW} for t in templates])
        texts = errors = skipped = 0
        for template, answer in zip(templates, ours):
            try:
                expected = env.from_string(template).render(**copy.deepcopy(jinja_random.VARIABLES))
            except Exception as error:  # pylint: disable=broad-exception-caught
                self.assertIn("error", answer, f"{template}\njinja2: {error!r}\nours: {answer.get('text')}")
                errors += 1
                continue
            if jinja_random.is_out_of_scope(expected, answer.get("error", "")):
                skipped += 1
                continue
            if answer.get("text", answer) != expected:  # without a diff, which takes long
                self.fail(f"{template}\njinja2: {expected!r}\nours: {answer.get('text', answer)!r}")
            texts += 1
        print(f"{len(templates)} random templates: {texts} texts equal, {errors} refused by both, {skipped} skipped")
        self.assertGreater(texts, len(templates) * 0.3)
        self.assertLess(skipped, len(templates) * 0.05)


class TokenIdsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"SLUICE_SEED={SEED}", flush=True)
        metadata = gguf_metadata.read(MODEL)
        cls.tokenizer, cls.names = compare_with_tokenizers.reference(lambda key: metadata[f"tokenizer.ggml.{key}"])
        cls.template = metadata["tokenizer.chat_template"]

    def test_random_strings(self):
        source = compare_with_tokenizers.RandomStrings(SEED, self.names)
        strings = [source.string() for _ in range(6000)]
        for plain in (False, True):
            self.assertEqual(compare_with_tokenizers.compare(str(BUILD / "tests/tokenize_dump"), MODEL, self.tokenizer, strings, plain), 0)

    def test_prompts_without_names_of_tokens(self):
        """All names that are there are the template's: the ids are those of the text."""
        rng = random.Random(SEED)
        conversations = [chat_conversations.random_conversation(rng.randrange(1 << 32)) for _ in range(600)]
        for conversation in conversations:
            for message in conversation["messages"]:
                message["content"] = message["content"].replace("<|", "<").replace("</s>", "").replace("<think>", "")
        ours = render_ours([{"messages": c["messages"]} for c in conversations], MODEL)
        self.tokenizer.encode_special_tokens = False
        for conversation, answer in zip(conversations, ours):
            self.assertEqual(answer["ids"], self.tokenizer.encode(answer["text"], add_special_tokens=False).ids, conversation)

    def test_prompts_with_names_of_tokens(self):
        """The names in the messages are text: each stretch between the template's own is encoded without them."""
        source = compare_with_tokenizers.RandomStrings(SEED, self.names)
        conversations = [[{"role": role, "content": source.string()} for role in ("system", "user", "assistant", "user")]
                         for _ in range(1000)]
        ours = render_ours([{"messages": messages} for messages in conversations], MODEL)
        start, end = (self.tokenizer.token_to_id(name) for name in ("<|im_start|>", "<|im_end|>"))
        self.tokenizer.encode_special_tokens = True

        def plain(text):
            return self.tokenizer.encode(text, add_special_tokens=False).ids

        for messages, answer in zip(conversations, ours):
            ids, between = [], ""
            for message in messages:
                ids += plain(between) + [start] + plain(message["role"] + "\n" + message["content"]) + [end]
                between = "\n"
            ids += plain("\n") + [start] + plain("assistant\n")
            self.assertEqual(answer["ids"], ids, messages)


if __name__ == "__main__":
    unittest.main()
