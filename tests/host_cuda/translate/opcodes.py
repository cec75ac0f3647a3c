"""One table: what each opcode becomes in C++, on the functions of ../ptx. Modifiers that an opcode does not name are refused."""
import opcodes_arithmetic
import opcodes_control
import opcodes_memory
import opcodes_warp

TABLE = {**opcodes_arithmetic.TABLE, **opcodes_memory.TABLE, **opcodes_warp.TABLE, **opcodes_control.TABLE}
