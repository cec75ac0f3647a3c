"""Answers against those of a golden file.

The golden ones are of float32, a GPU computes in bf16: at the first step where the two disagree, the golden file has to
hold the other token almost as likely. What follows it is another text and is not compared.
"""

NEAR = 0.1  # in log-probabilities


def compare(answer, golden):
    """(steps that were compared, what is wrong or None) of one prompt."""
    ids, wanted = answer["output_ids"], golden["output_ids"]
    for step, (got, want) in enumerate(zip(ids, wanted)):
        if got == want:
            continue
        best = dict(map(tuple, golden["top5"][step]))
        if got in best and max(best.values()) - best[got] <= NEAR:
            return step, None
        return step, (f"{golden['name']}: step {step} is token {got}, not {want}; "
                      f"its golden log-probability is {best.get(got, 'not among the best five')}")
    return min(len(ids), len(wanted)), None


def compare_all(answers, golden):
    """{"prompts", "steps", "whole": prompts equal to the end, "wrong": [...]}."""
    by_name = {prompt["name"]: prompt for prompt in golden["prompts"]}
    steps, whole, wrong = 0, 0, []
    for answer in answers["prompts"]:
        compared, error = compare(answer, by_name[answer["name"]])
        steps += compared
        whole += error is None and compared == len(answer["output_ids"])
        if error:
            wrong.append(error)
    return {"prompts": len(answers["prompts"]), "steps": steps, "whole": whole, "wrong": wrong}
