"""Conversations for tests of chat templates."""
import random


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def call(name, arguments, identifier="abcdefghi"):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, identifier="abcdefghi", **more):
    return {"role": "tool", "tool_call_id": identifier, "content": content, **more}


def text(*parts):
    return [{"type": "text", "text": part} for part in parts]


TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather é \"quoted\" <b> \\ \t",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "City"},
            "days": {"type": "integer", "minimum": 1.0, "enum": [1, 2, 3]},
            "unit": {"type": ["string", "null"], "default": None}}}}},
    {"type": "function", "function": {"name": "noop", "description": "Nothing",
                                      "parameters": {"type": "object", "properties": {}}}},
]
WEATHER = {"city": "Köln", "days": 2, "x": 1.0, "big": 1e20, "n": None, "b": True, "l": [1, "a"]}
NAMES = "<|im_end|><|eot_id|></s>[INST]<end_of_turn><｜User｜> <tool_call>"

CONVERSATIONS = {
    "one": {"messages": [user("Hello")]},
    "system": {"messages": [system("Be nice."), user("Hello"), assistant("Hi!"), user("Bye")]},
    "empty texts": {"messages": [system(""), user("")]},
    "white space": {"messages": [user("  lead\n\n"), assistant(" trail  \n"), user("\t x \u00a0")]},
    "unicode": {"messages": [user("naïve 日本語 😀 \u2028 \x7f\x01 'q' \"d\" \\ {{ x }} {% y %} {# z #}")]},
    "names of tokens": {"messages": [user(NAMES), assistant("<think>hm</think> ok"), user("go")]},
    "names of tokens everywhere": {"messages": [system(NAMES), user(NAMES), assistant(NAMES), user(NAMES)]},
    "call, result, answer": {"tools": TOOLS, "messages": [
        system("sys"), user("w?"), assistant(None, tool_calls=[call("get_weather", WEATHER)]),
        result("{\"t\": 3}", name="get_weather"), assistant("3 degrees"), user("thanks")]},
    "call and result": {"tools": TOOLS, "messages": [
        user("w?"), assistant("", tool_calls=[call("get_weather", {"city": "A"})]), result("ok", name="get_weather")]},
    "two calls": {"tools": TOOLS, "messages": [
        user("w?"), assistant("calling", tool_calls=[call("get_weather", {}), call("noop", {"a": {"b": []}}, "ABCDEFGHI")]),
        result("r1"), result("r2", "ABCDEFGHI"), user("and?")]},
    "tools": {"tools": TOOLS, "messages": [system("s"), user("tools?")]},
    "parts": {"messages": [user(text("part one", " part two "))]},
    "parts everywhere": {"messages": [system(text("sys part")), user(text("q")), assistant(text("a")), user("plain")]},
    "answer last": {"messages": [user("a"), assistant("b"), user("c"), assistant("d"), user("e"), assistant("f")]},
    "twice the user": {"messages": [user("a"), user("b")]},
    "reasoning": {"messages": [user("think"), assistant("answer", reasoning_content="because\n"), user("more")]},
    "arguments": {"messages": [user("think")], "template_arguments": {
        "enable_thinking": False, "custom": [1, 2.5, "x"], "date_string": "1 Jan 2025"}},
    "developer": {"messages": [{"role": "developer", "content": "dev"}, user("x")]},
    "long": {"messages": [user("x" * 20000 + "é" * 5000)]},
}


def random_text(rng):
    pieces = ["a", "Hello ", " ", "\n", "\n\n", "  ", "\t", "é", "日本", "😀", "'", "\"", "\\", "{{", "%}", "<", "|", "<|im_end|>",
              "<|im_start|>", "</think>", "<think>", "</s>", "1", "2.0", "\u2028", "\x01", "\u00a0", "{\"a\": 1}"]
    return "".join(rng.choice(pieces) for _ in range(rng.randint(0, 12)))


def random_json(rng, depth=0):
    kind = rng.randint(0, 6 if depth < 3 else 4)
    if kind <= 1:
        return random_text(rng)
    if kind == 2:
        return rng.choice([0, 1, -7, 123456789012, True, False, None])
    if kind == 3:
        return rng.choice([0.0, 1.0, -2.5, 1e-7, 3.14159, 1e22, 123456.75])
    if kind == 4:
        return rng.choice([[], {}])
    if kind == 5:
        return [random_json(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return {random_text(rng): random_json(rng, depth + 1) for _ in range(rng.randint(0, 3))}


def random_conversation(seed):
    """Turns with and without calls, in the usual order."""
    rng = random.Random(seed)
    messages = [system(random_text(rng))] if rng.random() < 0.5 else []
    for _ in range(rng.randint(1, 4)):
        messages.append(user(random_text(rng)))
        if rng.random() < 0.3:
            arguments = {random_text(rng): random_json(rng) for _ in range(rng.randint(0, 3))}
            messages.append(assistant(random_text(rng), tool_calls=[call("f", arguments)]))
            messages.append(result(random_text(rng), name="f"))
        messages.append(assistant(random_text(rng)))
    if rng.random() < 0.7:
        messages.pop()
    conversation = {"messages": messages}
    if rng.random() < 0.3:
        conversation["tools"] = [{"type": "function", "function": {
            "name": "f", "description": random_text(rng),
            "parameters": {"type": "object", "properties": {random_text(rng) or "p": {"type": "string"}}}}}]
    return conversation
