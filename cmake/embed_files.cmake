# Writes a C++ file that holds other files as they are:
#   cmake -D OUT=page_files.cc -D HEADER=router/page_files.h -D NAMESPACE=sluice::router -D FILES=a;b -P embed_files.cmake
# HEADER declares struct PageFile {name, text} and PageFiles().
string(REPLACE "|" ";" FILES "${FILES}")
set(arrays "")
set(table "")
set(index 0)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} hex HEX)
  string(LENGTH "${hex}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  string(APPEND arrays "constexpr unsigned char kFile${index}[] = {\n${hex}\n};\n")
  string(APPEND table "    {\"${name}\", {reinterpret_cast<const char*>(kFile${index}), ${size}}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUT} "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\nnamespace {\n\n${arrays}\n}  // namespace\n\n"
  "std::span<const PageFile> PageFiles() {\n  static const PageFile files[] = {\n${table}  };\n  return files;\n}\n\n"
  "}  // namespace ${NAMESPACE}\n")
