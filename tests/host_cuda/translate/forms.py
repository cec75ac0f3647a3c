"""The instructions that the translator accepts: one line a form, as the PTX ISA writes them.

    .name      must be there           .{a,b}  one of them
    [.a,.b]    one of them, or none    $X      a list from below, within either

What no line allows is refused. opcode_coverage.py demands a test of every alternative in every line.
"""
import dataclasses
import functools
import re

from ptx_types import SIZES

LISTS = {
    "INT": "u16,u32,u64,s16,s32,s64",
    "CARRY": "u32,s32,u64,s64",
    "BITS": "b16,b32,b64",
    "CVT": "u8,s8,u16,s16,u32,s32,u64,s64",
    "MEM": "b8,b16,b32,b64,u8,u16,u32,u64,s8,s16,s32,s64,f32,f64",
    "RND": ".rn,.rz,.rm,.rp",
    "RNDI": "rni,rzi,rmi,rpi",
    "BOOL": ".and,.or,.xor",
    "CMP": "eq,ne,lt,le,gt,ge",
    "FCMP": "eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan",
    "SEM": ".relaxed,.acquire,.release,.acq_rel",
    "SCOPE": ".cta,.gpu,.sys",
    "SPACE": ".global,.shared,.shared::cta",
    "L1": "L1::evict_normal,L1::evict_unchanged,L1::evict_first,L1::evict_last,L1::no_allocate",
    "L1OPT": ".L1::evict_normal,.L1::evict_unchanged,.L1::evict_first,.L1::evict_last,.L1::no_allocate",
    "L2": ".L2::64B,.L2::128B,.L2::256B",
    "POLICY": ".L2::cache_hint",
    "VEC": ".v2,.v4",
}

FORMS = """
# Integers
add.{$INT}
add.sat.s32
add.cc.{$CARRY}
addc[.cc].{$CARRY}
sub.{$INT}
sub.sat.s32
sub.cc.{$CARRY}
subc[.cc].{$CARRY}
mul.{lo,hi}.{$INT}
mul.wide.{u16,u32,s16,s32}
mad.{lo,hi}.{$INT}
mad.wide.{u16,u32,s16,s32}
mad.hi.sat.s32
mad.{lo,hi}.cc.{$CARRY}
madc.{lo,hi}[.cc].{$CARRY}
mul24.{lo,hi}.{u32,s32}
mad24.{lo,hi}.{u32,s32}
mad24.hi.sat.s32
div.{$INT}
rem.{$INT}
sad.{$INT}
abs.{s16,s32,s64}
neg.{s16,s32,s64}
min.{$INT}
max.{$INT}
dp4a.{u32,s32}.{u32,s32}
dp2a.{lo,hi}.{u32,s32}.{u32,s32}

# Bits
and.{pred,$BITS}
or.{pred,$BITS}
xor.{pred,$BITS}
not.{pred,$BITS}
cnot.{$BITS}
lop3.b32
shl.{$BITS}
shr.{$BITS,$INT}
shf.{l,r}.{clamp,wrap}.b32
bfe.{u32,u64,s32,s64}
bfi.{b32,b64}
bfind[.shiftamt].{u32,u64,s32,s64}
brev.{b32,b64}
popc.{b32,b64}
clz.{b32,b64}
bmsk.{clamp,wrap}.b32
szext.{clamp,wrap}.{u32,s32}
prmt.b32

# Floating point
add[$RND][.ftz][.sat].f32
add[$RND].f64
add[.rn][.ftz][.sat].{f16,f16x2}
add[.rn].{bf16,bf16x2}
sub[$RND][.ftz][.sat].f32
sub[$RND].f64
sub[.rn][.ftz][.sat].{f16,f16x2}
sub[.rn].{bf16,bf16x2}
mul[$RND][.ftz][.sat].f32
mul[$RND].f64
mul[.rn][.ftz][.sat].{f16,f16x2}
mul[.rn].{bf16,bf16x2}
fma.{rn,rz,rm,rp}[.ftz][.sat].f32
fma.{rn,rz,rm,rp}.f64
fma.rn[.ftz][.sat,.relu].{f16,f16x2}
fma.rn[.relu].{bf16,bf16x2}
mad.{rn,rz,rm,rp}[.ftz][.sat].f32
mad.{rn,rz,rm,rp}.f64
div.{rn,rz,rm,rp}[.ftz].f32
div.{rn,rz,rm,rp}.f64
div.{approx,full}[.ftz].f32
sqrt.{rn,rz,rm,rp}[.ftz].f32
sqrt.{rn,rz,rm,rp}.f64
sqrt.approx[.ftz].f32
rcp.{rn,rz,rm,rp}[.ftz].f32
rcp.{rn,rz,rm,rp}.f64
rcp.approx[.ftz].f32
rcp.approx.ftz.f64
rsqrt.approx[.ftz].{f32,f64}
ex2.approx[.ftz].f32
ex2.approx.{f16,f16x2}
ex2.approx.ftz.{bf16,bf16x2}
lg2.approx[.ftz].f32
sin.approx[.ftz].f32
cos.approx[.ftz].f32
tanh.approx.{f32,f16,f16x2,bf16,bf16x2}
abs[.ftz].f32
abs.f64
abs[.ftz].{f16,f16x2}
abs.{bf16,bf16x2}
neg[.ftz].f32
neg.f64
neg[.ftz].{f16,f16x2}
neg.{bf16,bf16x2}
min[.ftz][.NaN].f32
min.f64
min[.ftz][.NaN].{f16,f16x2}
min[.NaN].{bf16,bf16x2}
max[.ftz][.NaN].f32
max.f64
max[.ftz][.NaN].{f16,f16x2}
max[.NaN].{bf16,bf16x2}
copysign.{f32,f64}
testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64}

# Comparisons and choices
setp.{eq,ne}[$BOOL].{$BITS}
setp.{$CMP}[$BOOL].{s16,s32,s64}
setp.{$CMP,lo,ls,hi,hs}[$BOOL].{u16,u32,u64}
setp.{$FCMP}[$BOOL][.ftz].f32
setp.{$FCMP}[$BOOL].f64
setp.{$FCMP}[$BOOL][.ftz].{f16,f16x2}
setp.{$FCMP}[$BOOL].{bf16,bf16x2}
set.{eq,ne}[$BOOL].{u32,s32,f32}.{$BITS}
set.{$CMP}[$BOOL].{u32,s32,f32}.{s16,s32,s64}
set.{$CMP,lo,ls,hi,hs}[$BOOL].{u32,s32,f32}.{u16,u32,u64}
set.{$FCMP}[$BOOL][.ftz].{u32,s32,f32}.f32
set.{$FCMP}[$BOOL].{u32,s32,f32}.f64
set.{$FCMP}[$BOOL][.ftz].{f16,u16,s16,u32,s32}.f16
set.{$FCMP}[$BOOL].{bf16,u16,s16,u32,s32}.bf16
set.{$FCMP}[.ftz].{f16x2,u32,s32}.f16x2
set.{$FCMP}.{bf16x2,u32,s32}.bf16x2
selp.{$BITS,$INT,f32,f64}
slct.{$BITS,$INT,f32,f64}.s32
slct[.ftz].{$BITS,$INT,f32,f64}.f32

# Moves and conversions
mov.{pred,$BITS,$INT,f32,f64}
cvt.{$CVT}.{$CVT}
cvt.sat.u8.{s8,u16,s16,u32,s32,u64,s64}
cvt.sat.s8.{u8,u16,s16,u32,s32,u64,s64}
cvt.sat.u16.{s8,s16,u32,s32,u64,s64}
cvt.sat.s16.{u16,u32,s32,u64,s64}
cvt.sat.u32.{s8,s16,s32,u64,s64}
cvt.sat.s32.{u32,u64,s64}
cvt.sat.u64.{s8,s16,s32,s64}
cvt.sat.s64.u64
cvt.{$RNDI}[.ftz][.sat].{$CVT}.f32
cvt.{$RNDI}[.sat].{$CVT}.{f16,f64}
cvt.{$RNDI}.{$INT}.bf16
cvt.{rn,rz,rm,rp}[.sat].{f16,f32,f64}.{$CVT}
cvt.{rn,rz,rm,rp}.bf16.{$INT}
cvt[.$RNDI][.ftz][.sat].f32.f32
cvt[.$RNDI][.sat].f16.f16
cvt[.$RNDI].bf16.bf16
cvt[.$RNDI][.sat].f64.f64
cvt.{rn,rz,rm,rp}[.ftz][.sat].f32.f64
cvt[.ftz][.sat].f64.f32
cvt.{rn,rz,rm,rp}[.ftz][.sat].f16.f32
cvt.{rn,rz}.relu.f16.f32
cvt.{rn,rz}[.relu].bf16.f32
cvt.{rn,rz,rm,rp}[.sat].f16.f64
cvt.{rn,rz,rm,rp}.bf16.f64
cvt[.ftz][.sat].f32.f16
cvt[.sat].f64.f16
cvt.{f32,f64}.bf16
cvt.{rn,rz}[.relu].{f16x2,bf16x2}.f32
cvt.rna.tf32.f32
cvt.rn.satfinite[.relu].{e4m3x2,e5m2x2}.f32
cvt.rn[.relu].f16x2.{e4m3x2,e5m2x2}
cvt.pack.sat.{u16,s16}.s32
cvt.pack.sat.{u8,s8}.s32.b32

# Memory
ld[.weak][.global,.shared,.shared::cta,.local,.const][.ca,.cg,.cs,.lu,.cv][$VEC].{$MEM}
ld[.weak][.global][.ca,.cg,.cs,.lu,.cv][$POLICY][$L2][$VEC].{$MEM}
ld[.weak][.global].{$L1}[$POLICY][$L2][$VEC].{$MEM}
ld.global[.ca,.cg,.cs].nc[$POLICY][$L2][$VEC].{$MEM}
ld.global.nc.{$L1}[$POLICY][$L2][$VEC].{$MEM}
ld.volatile[$SPACE][$VEC].{$MEM}
ld.{relaxed,acquire}.{cta,gpu,sys}[$SPACE][$VEC].{$MEM}
ld.{relaxed,acquire}.{cta,gpu,sys}[.global][$L1OPT][$POLICY][$L2][$VEC].{$MEM}
ld.{param,param::entry,param::func}[$VEC].{$MEM}
ldu[.global][$VEC].{$MEM}
st[.weak][.global,.shared,.shared::cta,.local][.wb,.cg,.cs,.wt][$VEC].{$MEM}
st[.weak][.global][.wb,.cg,.cs,.wt].L2::cache_hint[$VEC].{$MEM}
st[.weak][.global].{$L1}[$POLICY][$VEC].{$MEM}
st.volatile[$SPACE][$VEC].{$MEM}
st.{relaxed,release}.{cta,gpu,sys}[$SPACE][$VEC].{$MEM}
st.{relaxed,release}.{cta,gpu,sys}[.global][$L1OPT][$POLICY][$VEC].{$MEM}
st.{param,param::func}[$VEC].{$MEM}
atom[$SEM][$SCOPE][$SPACE].{and,or,xor,exch}.{b32,b64}
atom[$SEM][$SCOPE][$SPACE].cas.{b16,b32,b64}
atom[$SEM][$SCOPE][$SPACE].{min,max}.{u32,u64,s32,s64}
atom[$SEM][$SCOPE][$SPACE].{inc,dec}.u32
atom[$SEM][$SCOPE][$SPACE].add.{u32,s32,u64,f32,f64}
atom[$SEM][$SCOPE][$SPACE].add.noftz.{f16,f16x2,bf16,bf16x2}
red[.relaxed,.release][$SCOPE][$SPACE].{and,or,xor}.{b32,b64}
red[.relaxed,.release][$SCOPE][$SPACE].{min,max}.{u32,u64,s32,s64}
red[.relaxed,.release][$SCOPE][$SPACE].{inc,dec}.u32
red[.relaxed,.release][$SCOPE][$SPACE].add.{u32,s32,u64,f32,f64}
red[.relaxed,.release][$SCOPE][$SPACE].add.noftz.{f16,f16x2,bf16,bf16x2}
membar.{cta,gl,sys}
fence[.sc,.acq_rel].{cta,gpu,sys}
prefetch[.global,.local].{L1,L2}
prefetch.global.{L2::evict_last,L2::evict_normal}
prefetchu.L1
discard[.global].L2
applypriority[.global].L2::evict_normal
cvta[.to].{global,shared,shared::cta,local,const,param}.u64
isspacep.{global,shared,shared::cta,local,const,param}
createpolicy.fractional.{L2::evict_last,L2::evict_normal,L2::evict_first,L2::evict_unchanged}.b64
cp.async.{ca,cg}.{shared,shared::cta}.global[$POLICY][$L2]
cp.async.commit_group
cp.async.wait_group
cp.async.wait_all
cp.async.mbarrier.arrive[.noinc][.shared,.shared::cta].b64

# Threads together
bar[.cta].{sync,arrive}
bar[.cta].red.popc.u32
bar[.cta].red.{and,or}.pred
bar.warp.sync
barrier[.cta].{sync,arrive}[.aligned]
barrier[.cta].red[.aligned].popc.u32
barrier[.cta].red[.aligned].{and,or}.pred
mbarrier.init[.shared,.shared::cta].b64
mbarrier.inval[.shared,.shared::cta].b64
mbarrier.{arrive,arrive_drop}[.noComplete][.shared,.shared::cta].b64
mbarrier.test_wait[.parity][.shared,.shared::cta].b64
mbarrier.pending_count.b64
shfl.sync.{up,down,bfly,idx}.b32
vote.sync.{all,any,uni}.pred
vote.sync.ballot.b32
match.{any,all}.sync.{b32,b64}
redux.sync.{add,min,max}.{u32,s32}
redux.sync.{and,or,xor}.b32
activemask.b32
ldmatrix.sync.aligned.m8n8.{x1,x2,x4}[.trans][.shared,.shared::cta].b16
stmatrix.sync.aligned.m8n8.{x1,x2,x4}[.trans][.shared,.shared::cta].b16
movmatrix.sync.aligned.m8n8.trans.b16
mma.sync.aligned.{m16n8k8,m16n8k16}.row.col.f32.f16.f16.f32
mma.sync.aligned.{m16n8k8,m16n8k16}.row.col.f16.f16.f16.f16
mma.sync.aligned.{m16n8k8,m16n8k16}.row.col.f32.bf16.bf16.f32
mma.sync.aligned.{m16n8k4,m16n8k8}.row.col.f32.tf32.tf32.f32
mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64
mma.sync.aligned.{m16n8k16,m16n8k32}.row.col.f32.{e4m3,e5m2}.{e4m3,e5m2}.f32
mma.sync.aligned.{m16n8k16,m16n8k32}.row.col.f16.{e4m3,e5m2}.{e4m3,e5m2}.f16
mma.sync.aligned.{m8n8k16,m16n8k16,m16n8k32}.row.col[.satfinite].s32.{s8,u8}.{s8,u8}.s32
mma.sync.aligned.{m8n8k32,m16n8k32,m16n8k64}.row.col[.satfinite].s32.{s4,u4}.{s4,u4}.s32
mma.sync.aligned.{m8n8k128,m16n8k128,m16n8k256}.row.col.s32.b1.b1.s32.{and,xor}.popc

# Control
bra[.uni]
brx.idx[.uni]
call[.uni]
ret[.uni]
exit
trap
brkpt
nanosleep.u32
"""

_LATER = "of sm_90 or later"
_VIDEO = "a video instruction"
_TEXTURE = "of textures and surfaces"
# What there is and is not done here, and why: for the message that refuses it.
REFUSED = {
    **dict.fromkeys(("wgmma", "tcgen05", "tensormap", "mapa", "getctarank", "elect", "setmaxnreg", "griddepcontrol", "multimem",
                     "clusterlaunchcontrol"), _LATER),
    "wmma": "mma.sync is what runs here (nvcuda::wmma is not)",
    **dict.fromkeys(("tex", "tld4", "txq", "istypep", "suld", "sust", "sured", "suq"), _TEXTURE),
    **dict.fromkeys((f"v{name}{lanes}" for name in ("add", "sub", "absdiff", "min", "max", "set", "avrg") for lanes in ("", "2", "4")), _VIDEO),
    **dict.fromkeys(("vmad", "vshl", "vshr"), _VIDEO),
    **dict.fromkeys(("alloca", "stacksave", "stackrestore"), "local memory of a size known at run time"),
    "pmevent": "a profiler's event",
}
TYPES = {"pred", "tf32", "e4m3", "e5m2", "e4m3x2", "e5m2x2", "s4", "u4", "b1", *SIZES}
GROUP = re.compile(r"\[(?P<optional>[^\]]*)\]|\.\{(?P<one>[^}]*)\}|\.(?P<literal>[\w:]+)")


@dataclasses.dataclass
class Group:
    """One place in a form; a None among the alternatives: it may be empty."""
    alternatives: list


@dataclasses.dataclass
class Form:
    text: str
    base: str
    groups: list

    def match(self, modifiers):
        """The alternative taken at each place, or None. Modifiers come in any order, as nvcc and the toolkit's headers have
        theirs, but for types."""
        left, taken = list(modifiers), []
        for group in self.groups:
            first_type = next((m for m in left if m in TYPES), None)
            found = next((m for m in left if m in group.alternatives and (m not in TYPES or m == first_type)), None)
            if found is None and None not in group.alternatives:
                return None
            if found is not None:
                left.remove(found)
            taken.append(found)
        return None if left else taken


def expand(text):
    return re.sub(r"\$(\w+)", lambda name: LISTS[name[1]], text)


def read_form(text):
    base = re.match(r"\w+", text)[0]
    rest, groups, at = expand(text)[len(base):], [], 0
    while at < len(rest):
        found = GROUP.match(rest, at)
        if found is None:
            raise ValueError(f"unreadable form {text!r}")
        at = found.end()
        if found["optional"] is not None:
            groups.append(Group([None] + [a.strip().lstrip(".") for a in found["optional"].split(",")]))
        else:
            groups.append(Group((found["one"] or found["literal"]).split(",")))
    return Form(text, base, groups)


ALL = [read_form(line.strip()) for line in FORMS.splitlines() if line.strip() and not line.startswith("#")]
BY_BASE = {}
for _form in ALL:
    BY_BASE.setdefault(_form.base, []).append(_form)


@functools.lru_cache(maxsize=None)
def find(opcode):
    """The forms that allow an opcode, each with the alternatives that it takes there."""
    base, *modifiers = opcode.split(".")
    matches = ((form, form.match(modifiers)) for form in BY_BASE.get(base, ()))
    return [(form, taken) for form, taken in matches if taken is not None]
