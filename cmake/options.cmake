set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

set(SLUICE_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize=, such as address,undefined or thread")
option(SLUICE_FUZZ "Build the libFuzzer targets (clang only)" OFF)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# Warnings and numerics of our own targets; generated code does not link it.
add_library(sluice_options INTERFACE)
target_compile_options(sluice_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers -Werror
  # The same bits on every machine: no contraction; fused multiply-add is written where it is meant.
  -ffp-contract=off)

if(SLUICE_SANITIZE)
  add_compile_options(-fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SLUICE_SANITIZE})
endif()

# What every executable links besides what it asks for.
add_library(sluice_executable INTERFACE)
if(SLUICE_SANITIZE MATCHES "thread")
  add_library(sluice_tsan_absl OBJECT ${PROJECT_SOURCE_DIR}/cmake/tsan/absl_for_tsan.cc)
  target_link_libraries(sluice_tsan_absl PRIVATE sluice_options absl::status absl::synchronization)
  target_link_libraries(sluice_executable INTERFACE $<TARGET_OBJECTS:sluice_tsan_absl>
                        absl::status absl::synchronization ${CMAKE_DL_LIBS})
  add_dependencies(sluice_executable sluice_tsan_absl)
endif()

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
