# sluice_embed(target file symbol): the file's bytes as `extern const std::string_view SYMBOL` of namespace sluice::embedded,
# built into the target; a change of the file rebuilds it. Run as a script (cmake -P) it writes the source.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${FILE} bytes HEX)
  string(LENGTH "${bytes}" size)
  math(EXPR size "${size} / 2")
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  file(WRITE ${OUT} "#include <string_view>\nnamespace sluice::embedded {\nnamespace {\nconstexpr unsigned char kBytes[] = {${bytes}0};\n}\n"
       "extern const std::string_view ${SYMBOL};\nconst std::string_view ${SYMBOL}(reinterpret_cast<const char*>(kBytes), ${size});\n}\n")
  return()
endif()

function(sluice_embed target file symbol)
  set(out ${CMAKE_BINARY_DIR}/gen/embedded/${symbol}.cc)
  get_filename_component(path ${file} ABSOLUTE)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DFILE=${path} -DOUT=${out} -DSYMBOL=${symbol} -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${path} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
