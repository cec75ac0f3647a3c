"""The results of check as a text that a person reads."""


def rows_of(results):
    for test in results.get("kernels", []):
        state = "ok" if not test["failed"] else "FAILED " + ", ".join(test["failed"])
        yield "test", test["test"], f"{test['passed']} passed in {test['seconds']:.1f} s", state
    answers = results.get("answers")
    if answers:
        state = "ok" if not answers["wrong"] else "WRONG " + "; ".join(answers["wrong"])
        yield "answers", f"{answers['prompts']} prompts", (f"{answers['steps']} tokens compared, "
                                                           f"{answers['whole']} answers equal to the end"), state
    for r in results.get("speed of kernels", []):
        yield "kernel", f"{r['kernel']}, {r['shape']}", speed(r), bar(r["bar"])
    steps = results.get("speed of steps", {})
    for row in steps.get("decode", []):
        what = f"decode {row['batch']} at {row['context']}, {'graphs' if row['graphs'] else 'no graphs'}"
        yield "step", what, (f"{row['step_us'] / 1e3:.2f} ms, host {row['host_us']:.0f} us, "
                             f"{row['tokens_per_s']:,.0f} tokens/s"), share(row)
    for row in steps.get("prefill", []):
        yield "step", f"prefill {row['prompt']}", f"{row['ms']:.1f} ms, {row['tokens_per_s']:,.0f} tokens/s", share(row)
    for part, error in results["errors"].items():
        yield "error", part, error, "NOT DONE"


def speed(r):
    text = f"{r['us']:.1f} us, {r['gb_per_s']:,.0f} GB/s ({r['of_copy']:.0%} of a copy)"
    return text + (f", {r['tflop_per_s']:.1f} TFLOP/s" if r["flops"] else "")


def bar(found):
    if not found:
        return ""
    met = found["value"] >= found["bar"]
    return f"{'met' if met else 'SHORT'}: {found['bar']:,.0f} {found['unit']}, {found['why']}"


def share(row):
    return f"{row['of_roofline']:.0%} of the roofline" if "of_roofline" in row else ""


def of(results):
    device = results["device"]
    head = (f"{device['device']}, sm_{device['sm']}, {device['memory_bytes'] / 2**30:.0f} GiB, "
            f"a copy moves {results['copy_gb_per_s']:,.0f} GB/s")
    rows = list(rows_of(results))
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
    lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]).rstrip() for row in rows]
    return "\n".join([head, "", *lines])
