"""Loads, stores, atomics, fences, addresses."""
from operation import SCOPES
from ptx_types import cpp

SPACES = {"global": "kGlobal", "shared": "kShared", "local": "kLocal", "const": "kGeneric"}
# Hints to caches: they change no value.
HINTS = ("ca", "cg", "cs", "lu", "cv", "wb", "wt")


def space(op):
    taken = op.take("global", "shared", "local", "const", "param", "shared::cta", "param::entry", "param::func")
    if taken is None:
        return "kGeneric"
    taken = taken.split("::")[0]
    return taken if taken == "param" else SPACES[taken]


def ordering(op):
    """None: an ordinary access."""
    op.take("weak")
    if op.take("volatile", "relaxed"):
        taken = "kRelaxed"
    elif op.take("acquire"):
        taken = "kAcquire"
    elif op.take("release"):
        taken = "kRelease"
    elif op.take("acq_rel"):
        taken = "kAcquireRelease"
    else:
        taken = None
    op.take(*SCOPES)
    return taken


def hints(op):
    op.take(*HINTS)
    op.take("nc")
    for prefix in ("L1::", "L2::"):
        while op.take_matching(prefix):
            pass


def vector(op):
    return {"v2": 2, "v4": 4}.get(op.take("v2", "v4"), 1)


def access(op):
    kind = op.take_types()
    count, order, where = vector(op), ordering(op), space(op)
    with_policy(op, 2)
    hints(op)
    return kind, count, order, where


def with_policy(op, *counts):
    """A cache policy is one operand more, and changes no value."""
    if op.take("L2::cache_hint"):
        op.operands = op.operands[:-1]
    op.count(*counts)


def load(op):
    kind, count, order, where = access(op)
    address = op.address(1)
    if where == "param":
        return op.put_array(0, f"LoadParam<{cpp(kind)}, {count}>({address})", kind)
    template = f"<{cpp(kind)}, {count}, Space::{where}>"
    if order:
        return op.put_array(0, f"LoadOrdered{template}(window, {address}, Ordering::{order})", kind)
    return op.put_array(0, f"Load{template}(window, {address})", kind)


def store(op):
    kind, count, order, where = access(op)
    address, values = op.address(0), op.array(1, kind, count)
    if where == "param":
        return f"StoreParam<{cpp(kind)}, {count}>({address}, {values});"
    template = f"<{cpp(kind)}, {count}, Space::{where}>"
    if order:
        return f"StoreOrdered{template}(window, {address}, {values}, Ordering::{order});"
    return f"Store{template}(window, {address}, {values});"


ATOMICS = {"add": "kAdd", "min": "kMin", "max": "kMax", "and": "kAnd", "or": "kOr", "xor": "kXor", "inc": "kInc",
           "dec": "kDec", "exch": "kExchange"}


def atomic(op, address_at):
    """The expression of the old value, and its type."""
    kind = op.take_types()
    order = ordering(op) or "kRelaxed"
    where = space(op)
    op.take("noftz")
    address = op.address(address_at)
    if op.take("cas"):
        op.count(address_at + 3)
        values = f"{op.value(address_at + 1, kind)}, {op.value(address_at + 2, kind)}"
        return f"AtomicCas<{cpp(kind)}, Space::{where}>(window, {address}, {values}, Ordering::{order})"
    how = ATOMICS[op.need(*ATOMICS)]
    op.count(address_at + 2)
    return f"Atomic<AtomicOp::{how}, {cpp(kind)}, Space::{where}>(window, {address}, {op.value(address_at + 1, kind)}, " \
           f"Ordering::{order})"


def atom(op):
    return op.put(0, atomic(op, 1))


def red(op):
    return f"(void){atomic(op, 0)};"


def fence(op):
    op.take("sc", "acq_rel", "acquire", "release")
    op.take("cta", "gl", "sys", "gpu")
    op.count(0)
    return "Fence();"


def nothing(op):
    op.modifiers.clear()
    return ";"


def discard(op):
    op.modifiers.clear()
    op.count(2)
    return f"Discard(window, {op.address(0)}, {op.value(1, 'u32')});"


def cvta(op):
    kind = op.take_types()
    op.take("to")
    op.take("global", "shared", "local", "const", "param", "shared::cta")
    op.count(2)
    return op.put(0, op.value(1, kind), kind)


def isspacep(op):
    where = op.need("shared", "shared::cta", "global", "local", "const", "param").split("::")[0]
    op.count(2)
    target = op.names.destination(op.operands[0].name, op.line)
    return f"{target} = SpaceOf(window, {op.value(1, 'u64')}) == AddressSpace::k{where.capitalize()};"


def createpolicy(op):
    op.modifiers.clear()
    return op.put(0, "u64{0}")


def cp(op):
    op.need("async")
    if op.take("commit_group"):
        op.count(0)
        return "CommitCopies();"
    if op.take("wait_group"):
        op.count(1)
        return f"WaitGroup({op.value(0, 'u32')});"
    if op.take("wait_all"):
        op.count(0)
        return "WaitAll();"
    if op.take("mbarrier"):
        for modifier in ("arrive", "b64"):
            op.need(modifier)
        op.take("shared", "shared::cta")
        op.count(1)
        return f"ArriveAfterCopies(window, {op.address(0)}, {'true' if op.take('noinc') else 'false'});"
    op.need("ca", "cg")
    op.need("shared", "shared::cta")
    op.need("global")
    with_policy(op, 3, 4)
    hints(op)
    size = op.value(2, "u32")
    valid = op.value(3, "u32") if len(op.operands) > 3 else size
    return f"CopyAsync(window, {op.address(0)}, {op.address(1)}, {size}, {valid});"


def mbarrier(op):
    what = op.need("init", "inval", "arrive", "arrive_drop", "test_wait", "pending_count")
    op.take("shared", "shared::cta")
    op.need("b64")
    if what == "init":
        op.count(2)
        return f"InitBarrier(window, {op.address(0)}, {op.value(1, 'u32')});"
    if what == "inval":
        op.count(1)
        return f"InvalidateBarrier(window, {op.address(0)});"
    if what == "pending_count":
        op.count(2)
        return op.put(0, f"PendingCount({op.value(1, 'b64')})")
    if what == "test_wait":
        op.count(3)
        function, kind = ("TestParity", "u32") if op.take("parity") else ("TestWait", "b64")
        target = op.names.destination(op.operands[0].name, op.line)
        return f"{target} = {function}(window, {op.address(1)}, {op.value(2, kind)});"
    op.count(2, 3)
    count = op.value(2, "u32") if len(op.operands) == 3 else "1"
    how = "kDrop" if what == "arrive_drop" else "kStay"
    completes = "false" if op.take("noComplete") else "true"
    return op.put(0, f"ArriveAtBarrier(window, {op.address(1)}, {count}, Arrival::{how}, {completes})")


TABLE = {
    "ld": load, "ldu": load, "st": store, "atom": atom, "red": red, "membar": fence, "fence": fence,
    "prefetch": nothing, "prefetchu": nothing, "discard": discard, "applypriority": nothing,
    "cvta": cvta, "isspacep": isspacep, "createpolicy": createpolicy, "cp": cp, "mbarrier": mbarrier,
}
