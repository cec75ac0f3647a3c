"""Functions that device code calls and no .cu defines: their C++, on what lies in the parameters' memory."""

EXTERNAL = {
    "vprintf": "inline void fn_vprintf(u8* result, u8* format, u8* arguments) {\n"
               "  const s32 n = VPrintf(reinterpret_cast<const char*>(LoadParam<u64, 1>(u64(format)).at[0]),\n"
               "                        reinterpret_cast<const u8*>(LoadParam<u64, 1>(u64(arguments)).at[0]));\n"
               "  StoreParam<s32, 1>(u64(result), {n});\n}",
    "__assertfail": "inline void fn___assertfail(u8* message, u8* file, u8* line, u8* function, u8*) {\n"
                    "  AssertFail(reinterpret_cast<const char*>(LoadParam<u64, 1>(u64(message)).at[0]),\n"
                    "             reinterpret_cast<const char*>(LoadParam<u64, 1>(u64(file)).at[0]),\n"
                    "             LoadParam<u32, 1>(u64(line)).at[0],\n"
                    "             reinterpret_cast<const char*>(LoadParam<u64, 1>(u64(function)).at[0]));\n}",
    "malloc": "inline void fn_malloc(u8* result, u8* bytes) {\n"
              "  StoreParam<u64, 1>(u64(result), {HeapAllocate(LoadParam<u64, 1>(u64(bytes)).at[0])});\n}",
    "free": "inline void fn_free(u8* address, Loc where = Loc::current()) {\n"
            "  HeapFree(LoadParam<u64, 1>(u64(address)).at[0], where);\n}",
}
