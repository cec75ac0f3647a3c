"""What the translator refuses, and how it says so."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import forms
from opcodes import TABLE

HERE = pathlib.Path(__file__).resolve().parent
HEAD = ".version 9.0\n.target sm_80\n.address_size 64\n.file 1 \"kernel.cu\"\n"
KERNEL = HEAD + ".visible .entry kernel(.param .u64 out)\n{{\n.reg .b32 %r<4>; .reg .pred %p<2>;\n.loc 1 42 0\n{}\nret;\n}}\n"


def translate(ptx):
    with tempfile.TemporaryDirectory() as folder:
        source, out = pathlib.Path(folder, "a.ptx"), pathlib.Path(folder, "a.cc")
        source.write_text(ptx, encoding="utf-8")
        done = subprocess.run([sys.executable, "-B", HERE / "translate.py", source, out], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr, out.read_text(encoding="utf-8") if out.exists() else ""


class TranslateTest(unittest.TestCase):
    def refused(self, instruction, *words):
        code, error, out = translate(KERNEL.format(instruction))
        self.assertEqual(code, 1, error)
        self.assertEqual(out, "", "nothing may be written")
        for word in words:
            self.assertIn(word, error)
        self.assertNotIn("Traceback", error)

    def test_what_is_unknown_ends_it_with_its_line(self):
        self.refused("wgmma.fence.sync.aligned;", "line 9", "'wgmma.fence.sync.aligned'", "kernel.cu:42", "in kernel")
        self.refused("add.strange.u32 %r1, %r2, %r3;", "no such form", "add.{u16,u32,u64,s16,s32,s64}")
        self.refused("add.u32 %r1, %r2;", "2 operands")
        self.refused("add.u32 %r1, %r2, %r9;", "'%r9'")
        self.refused("mov.u32 %r1, %nobody;", "'%nobody'")
        self.refused("add.u31 %r1, %r2, %r3;", "no such form")
        self.refused("mma.sync.aligned.m16n8k99.row.col.f32.bf16.bf16.f32 {%r1}, {%r1}, {%r1}, {%r1};", "no such form")
        self.refused("setp.lt %p1, %r1, %r2;", "no such form")
        self.refused("cvt.sat.s64.s8 %r1, %r2;", "no such form")
        self.refused("call nobody;", "'nobody'")
        self.refused("§", "unreadable")

    def test_what_is_unsupported_says_why(self):
        self.refused("wgmma.fence.sync.aligned;", "unsupported opcode 'wgmma.fence.sync.aligned': of sm_90 or later")
        self.refused("wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1}, [%r2], 16;", "mma.sync is what runs here")
        self.refused("strange.u32 %r1;", "unknown opcode 'strange.u32'")
        self.refused("cp.async.bulk.wait_group 0;", "no such form")
        self.assertFalse(set(forms.REFUSED) & set(forms.BY_BASE), "refused and known")
        self.assertEqual(set(TABLE), set(forms.BY_BASE), "an opcode without a form, or a form without an opcode")

    def test_forms_allow_what_they_say(self):
        def allowed(opcode):
            return [form.text for form, _ in forms.find(opcode)]
        self.assertEqual(allowed("add.sat.s32"), ["add.sat.s32"])
        self.assertEqual(allowed("add.sat.u32"), [])
        self.assertEqual(allowed("atom.add.acq_rel.gpu.u32"), allowed("atom.acq_rel.gpu.add.u32"), "in any order")
        self.assertEqual(len(allowed("cvt.sat.u16.s8")), 1)
        self.assertEqual(allowed("cvt.sat.s16.u8"), [], "types in their order")
        self.assertEqual(allowed("mul.lo.lo.u32"), [], "once")

    def test_lines_lead_back_to_the_source(self):
        code, error, out = translate(KERNEL.format("add.u32 %r1, %r2, 1;"))
        self.assertEqual((code, error), (0, ""))
        self.assertIn('#line 42 "kernel.cu"\n  r__r1 = ', out)

    def test_lines_of_the_toolkit_are_those_of_its_callers(self):
        head = KERNEL.replace('"kernel.cu"\n', '"kernel.cu"\n.file 2 "/usr/local/cuda/include/a.hpp"\n.section .debug_str {{ }}\n')
        inlined = ".loc 2 7 1, function_name $L__x, inlined_at 1 42 0\n.loc 2 99 3, function_name $L__y+4, inlined_at 2 7 1\n"
        code, error, out = translate(head.format(inlined + "add.u32 %r1, %r2, 1;"))
        self.assertEqual((code, error), (0, ""))
        self.assertIn('#line 42 "kernel.cu"\n  r__r1 = ', out)

    def test_an_unfinished_file_is_refused(self):
        self.assertEqual(translate(HEAD + ".visible .entry k()\n{\nret;\n")[0], 1)
        self.assertEqual(translate(HEAD + ".visible .entry k()\n{\nadd.u32 \n")[0], 1)


if __name__ == "__main__":
    unittest.main()
