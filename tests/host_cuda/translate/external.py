"""Functions that device code calls and no .cu defines: their C++, on what lies in the parameters' memory."""

EXTERNAL = {
    "vprintf": "inline void fn_vprintf(u8* result, u8* format, u8* arguments) {\n"
               "  const s32 n = VPrintf(reinterpret_cast<const char*>(LoadParam<u64, 1>(u64(format))[0]),\n"
               "                        reinterpret_cast<const u8*>(LoadParam<u64, 1>(u64(arguments))[0]));\n"
               "  StoreParam<s32, 1>(u64(result), {n});\n}",
    "__assertfail": "inline void fn___assertfail(u8* message, u8* file, u8* line, u8* function, u8*) {\n"
                    "  AssertFail(reinterpret_cast<const char*>(LoadParam<u64, 1>(u64(message))[0]),\n"
                    "             reinterpret_cast<const char*>(LoadParam<u64, 1>(u64(file))[0]),\n"
                    "             LoadParam<u32, 1>(u64(line))[0],\n"
                    "             reinterpret_cast<const char*>(LoadParam<u64, 1>(u64(function))[0]));\n}",
    "malloc": "inline void fn_malloc(u8* result, u8* bytes) {\n"
              "  StoreParam<u64, 1>(u64(result), {HeapAllocate(LoadParam<u64, 1>(u64(bytes))[0])});\n}",
    "free": "inline void fn_free(u8* address, const Loc& where = Loc::current()) {\n"
            "  HeapFree(LoadParam<u64, 1>(u64(address))[0], where);\n}",
}
