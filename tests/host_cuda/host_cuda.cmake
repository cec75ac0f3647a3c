# CUDA on the test runtime.
#
#   host_cuda_kernels(name CU a.cu ... [DEFINES ...])
#     kernels that several tests and plugins share (KERNELS name): nvcc and the translation, which take long, run once. As an object
#     library it is the translated kernels alone, for tests that call RunGrid themselves.
#   host_cuda_test(name [KERNELS set ...] [CU a.cu ...] SRCS a_test.cc ... [DEPS ...] [LIBS ...] [LABELS ...] [DEFINES ...] [ON_HOST_ONLY])
#     one test, two programs from the same objects of nvcc and of the test:
#       name          the kernels translated, on the test runtime in libcudart's place
#       name_device   linked with the toolkit's own cudart (and cuBLAS and NCCL where there are any): skipped without a device; not with ON_HOST_ONLY
#   host_cuda_plugin(name [KERNELS set ...] [CU a.cu ...] SRCS a.cc ... [DEPS ...] [LIBS ...] [DEFINES ...] [OUTPUT_DIRECTORY dir])
#     what a process loads with dlopen, twice from the same objects of SRCS, hidden but for what SRCS export:
#       name_host.so  on the test runtime, as a shared library (plugin/), which the process and the libraries share
#       name.so       with the toolkit's static cudart, and device code for each of HOST_CUDA_ARCHS; not under a sanitizer
#     What it opens itself, libcublasLt.so.13 and libnccl.so.2, name_host.so finds in HOST_CUDA_LIBRARIES.
#   host_cuda_program(name KERNELS set ... SRCS a.cc ... [DEPS ...] [LIBS ...])
#     an executable, likewise: name_host on the test runtime, and name with code for each of HOST_CUDA_ARCHS
#
# Without nvcc none of it is built, and ctest shows the test as skipped. What runs is what nvcc generates for sm_80: the translator
# (translate/) reads its PTX, and the host side is its ordinary object.
find_program(SLUICE_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
find_program(SLUICE_PYTHON3 python3 REQUIRED)
find_library(SLUICE_NCCL nccl HINTS $ENV{NCCL_HOME}/lib $ENV{CUDA_HOME}/lib64 /usr/local/cuda/lib64)
set(HOST_CUDA_DIR ${CMAKE_CURRENT_LIST_DIR})
file(GLOB HOST_CUDA_TRANSLATOR CONFIGURE_DEPENDS ${HOST_CUDA_DIR}/translate/*.py)
set(HOST_CUDA_KERNEL_OPTIONS -w -g1 -O1 -fno-strict-aliasing -fwrapv -ffp-contract=off -fno-sanitize=undefined -fvisibility=hidden)
if(SLUICE_SANITIZE MATCHES "address")
  # ASan watches what a kernel does with memory, not the thousands of temporaries on the translation's stack: with these a large
  # kernel takes seconds to compile instead of tens of minutes.
  list(APPEND HOST_CUDA_KERNEL_OPTIONS "SHELL:--param asan-stack=0" -fno-sanitize-address-use-after-scope)
endif()
set(HOST_CUDA_NVCC_OPTIONS -std=c++20 -O2 -lineinfo --expt-relaxed-constexpr -I${PROJECT_SOURCE_DIR} -Xcompiler -fPIC -Xcompiler -fvisibility=hidden)
# Where libhost_cudart.so is, and the fakes that are found by their real names.
set(HOST_CUDA_LIBRARIES ${CMAKE_BINARY_DIR}/host_cuda_lib)
# What objects for GPUs have code for.
set(HOST_CUDA_ARCHS 80 90a 100a)
# The toolkit whose private interface between an object and cudart the runtime speaks.
set(HOST_CUDA_TOOLKIT 13.0)

if(SLUICE_NVCC)
  execute_process(COMMAND ${SLUICE_NVCC} --version OUTPUT_VARIABLE nvcc_version)
  if(NOT nvcc_version MATCHES "release ${HOST_CUDA_TOOLKIT},")
    message(WARNING "host_cuda: ${SLUICE_NVCC} is not of CUDA ${HOST_CUDA_TOOLKIT}: what needs it is SKIPPED")
    set(SLUICE_NVCC "")
  endif()
endif()

# PTX to an object library of C++.
function(host_cuda_translate name)
  set(sources "")
  foreach(ptx ${ARGN})
    cmake_path(GET ptx STEM stem)
    set(out ${CMAKE_CURRENT_BINARY_DIR}/${name}.translated/${stem}.cc)
    add_custom_command(OUTPUT ${out}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/${name}.translated
      COMMAND ${SLUICE_PYTHON3} -B ${HOST_CUDA_DIR}/translate/translate.py ${ptx} ${out} --opcodes ${out}.opcodes
      DEPENDS ${ptx} ${HOST_CUDA_TRANSLATOR} COMMENT "Translating ${stem}.ptx" VERBATIM)
    list(APPEND sources ${out})
    set_property(GLOBAL APPEND PROPERTY HOST_CUDA_OPCODES ${out}.opcodes)
  endforeach()
  add_library(${name} OBJECT ${sources})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${HOST_CUDA_KERNEL_OPTIONS})
  target_link_libraries(${name} PRIVATE host_cuda_engine)
endfunction()

# nvcc's object and PTX of each .cu: sets ${name}_OBJECTS and ${name}_PTX for the caller.
function(host_cuda_compile name)
  cmake_parse_arguments(ARG "" "" "CU;DEFINES" ${ARGN})
  set(objects "")
  set(ptx "")
  list(TRANSFORM ARG_DEFINES PREPEND -D)
  foreach(cu ${ARG_CU})
    cmake_path(ABSOLUTE_PATH cu BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    cmake_path(GET cu STEM stem)
    set(dir ${CMAKE_CURRENT_BINARY_DIR}/${name}.nvcc/${stem})
    add_custom_command(OUTPUT ${dir}/${stem}.o ${dir}/${stem}.ptx
      COMMAND ${CMAKE_COMMAND} -E make_directory ${dir}
      COMMAND ${SLUICE_NVCC} ${HOST_CUDA_NVCC_OPTIONS} -gencode arch=compute_80,code=compute_80 --keep --keep-dir ${dir}
              ${ARG_DEFINES} -MD -MF ${dir}/${stem}.d -c ${cu} -o ${dir}/${stem}.o
      DEPENDS ${cu} DEPFILE ${dir}/${stem}.d COMMENT "nvcc ${stem}.cu" VERBATIM)
    list(APPEND objects ${dir}/${stem}.o)
    list(APPEND ptx ${dir}/${stem}.ptx)
  endforeach()
  set(${name}_OBJECTS ${objects} PARENT_SCOPE)
  set(${name}_PTX ${ptx} PARENT_SCOPE)
endfunction()

# Objects with device code for each architecture, for GPUs: sets ${name}_DEVICE_OBJECTS for the caller.
function(host_cuda_compile_for_devices name)
  cmake_parse_arguments(ARG "" "" "CU;DEFINES;ARCHS" ${ARGN})
  list(TRANSFORM ARG_DEFINES PREPEND -D)
  set(codes "")
  foreach(arch ${ARG_ARCHS})
    list(APPEND codes -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  set(objects "")
  foreach(cu ${ARG_CU})
    cmake_path(ABSOLUTE_PATH cu BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    cmake_path(GET cu STEM stem)
    set(out ${CMAKE_CURRENT_BINARY_DIR}/${name}.nvcc/${stem}.device.o)
    add_custom_command(OUTPUT ${out}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/${name}.nvcc
      COMMAND ${HOST_CUDA_DIR}/with_usage.sh ${out}.usage
              ${SLUICE_NVCC} ${HOST_CUDA_NVCC_OPTIONS} ${codes} ${ARG_DEFINES} -Xptxas -v -MD -MF ${out}.d -c ${cu} -o ${out}
      DEPENDS ${cu} DEPFILE ${out}.d COMMENT "nvcc ${stem}.cu for GPUs" VERBATIM)
    list(APPEND objects ${out})
  endforeach()
  set(${name}_DEVICE_OBJECTS ${objects} PARENT_SCOPE)
endfunction()

# The object files are known by the set's name wherever they are linked.
function(host_cuda_kernels name)
  if(NOT SLUICE_NVCC)
    return()
  endif()
  host_cuda_compile(${name} ${ARGN})
  host_cuda_translate(${name} ${${name}_PTX})
  set_property(GLOBAL PROPERTY ${name}_OBJECTS ${${name}_OBJECTS})
  add_custom_target(${name}_nvcc DEPENDS ${${name}_OBJECTS})
  find_package(CUDAToolkit QUIET)
  if(SLUICE_SANITIZE OR NOT CUDAToolkit_FOUND)
    return()
  endif()
  host_cuda_compile_for_devices(${name} ${ARGN} ARCHS ${HOST_CUDA_ARCHS})
  set_property(GLOBAL PROPERTY ${name}_DEVICE_OBJECTS ${${name}_DEVICE_OBJECTS})
  add_custom_target(${name}_devices DEPENDS ${${name}_DEVICE_OBJECTS})
endfunction()

# Of sets: sets ${name}_SET_OBJECTS or, of objects with code for GPUs, ${name}_SET_DEVICE_OBJECTS, and ${name}_SET_KERNELS.
function(host_cuda_sets name)
  set(objects "")
  set(device_objects "")
  set(kernels "")
  foreach(set ${ARGN})
    get_property(of_set GLOBAL PROPERTY ${set}_OBJECTS)
    list(APPEND objects ${of_set})
    get_property(of_set GLOBAL PROPERTY ${set}_DEVICE_OBJECTS)
    list(APPEND device_objects ${of_set})
    list(APPEND kernels $<TARGET_OBJECTS:${set}>)
  endforeach()
  set_source_files_properties(${objects} ${device_objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set(${name}_SET_OBJECTS ${objects} PARENT_SCOPE)
  set(${name}_SET_DEVICE_OBJECTS ${device_objects} PARENT_SCOPE)
  set(${name}_SET_KERNELS ${kernels} PARENT_SCOPE)
endfunction()

function(host_cuda_test name)
  if(NOT SLUICE_NVCC)
    host_cuda_skipped(${name} "no nvcc of CUDA ${HOST_CUDA_TOOLKIT}")
    return()
  endif()
  cmake_parse_arguments(ARG "ON_HOST_ONLY" "" "KERNELS;CU;SRCS;DEPS;LIBS;LABELS;DEFINES" ${ARGN})
  if(ARG_CU)
    host_cuda_kernels(${name}_kernels CU ${ARG_CU} DEFINES ${ARG_DEFINES})
    list(APPEND ARG_KERNELS ${name}_kernels)
  endif()
  host_cuda_sets(${name} ${ARG_KERNELS})
  add_library(${name}_objects OBJECT ${ARG_SRCS})
  sluice_target_setup(${name}_objects)
  target_include_directories(${name}_objects SYSTEM PRIVATE ${SLUICE_CUDA_INCLUDE} ${SLUICE_NCCL_INCLUDE})
  target_link_libraries(${name}_objects PRIVATE ${ARG_DEPS} ${ARG_LIBS} GTest::gmock)

  add_executable(${name} $<TARGET_OBJECTS:${name}_objects> ${${name}_SET_KERNELS} ${${name}_SET_OBJECTS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} ${ARG_LIBS} host_cuda_runtime host_cuda_ptx host_cuda_engine
                        sluice_executable
                        GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests LINKER_LANGUAGE CXX)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS "unit;host_cuda;${ARG_LABELS}")
  sluice_test_labels(${name} host_cuda ${ARG_LABELS})
  if(NOT ARG_ON_HOST_ONLY)
    # Kernels of the product run as the product has them, compiled for each architecture; a test's own from their PTX.
    if(ARG_CU OR NOT ${name}_SET_DEVICE_OBJECTS)
      set(${name}_SET_DEVICE_OBJECTS ${${name}_SET_OBJECTS})
    endif()
    host_cuda_device_twin(${name} "${ARG_DEPS}" "${ARG_LIBS}" "${${name}_SET_DEVICE_OBJECTS}")
  endif()
endfunction()

# The same objects with the real libraries. A sanitizer of the host has no use for it.
function(host_cuda_device_twin name deps libs objects)
  find_package(CUDAToolkit QUIET)
  if(SLUICE_SANITIZE OR NOT CUDAToolkit_FOUND)
    return()
  endif()
  add_executable(${name}_device $<TARGET_OBJECTS:${name}_objects> ${objects})
  set(real CUDA::cudart_static)
  foreach(library cublas cublasLt)
    if(TARGET CUDA::${library})
      list(APPEND real CUDA::${library})
    endif()
  endforeach()
  if(SLUICE_NCCL)
    list(APPEND real ${SLUICE_NCCL})
  endif()
  target_link_libraries(${name}_device PRIVATE ${deps} ${libs} ${real} sluice_executable GTest::gmock GTest::gtest_main)
  set_target_properties(${name}_device PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests LINKER_LANGUAGE CXX)
  add_test(NAME ${name}_device COMMAND ${name}_device WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name}_device PROPERTIES TIMEOUT 600 LABELS "unit;host_cuda_device" SKIP_REGULAR_EXPRESSION
                       "no CUDA device")
endfunction()

function(host_cuda_plugin name)
  if(NOT SLUICE_NVCC)
    message(WARNING "${name} is not built: no nvcc of CUDA ${HOST_CUDA_TOOLKIT}")
    return()
  endif()
  cmake_parse_arguments(ARG "" "OUTPUT_DIRECTORY" "KERNELS;CU;SRCS;DEPS;LIBS;DEFINES" ${ARGN})
  if(NOT ARG_OUTPUT_DIRECTORY)
    set(ARG_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  endif()
  add_library(${name}_objects OBJECT ${ARG_SRCS})
  sluice_target_setup(${name}_objects)
  target_compile_definitions(${name}_objects PRIVATE ${ARG_DEFINES})
  target_include_directories(${name}_objects SYSTEM PRIVATE ${SLUICE_CUDA_INCLUDE} ${SLUICE_NCCL_INCLUDE})
  target_link_libraries(${name}_objects PRIVATE ${ARG_DEPS} ${ARG_LIBS})
  set_target_properties(${name}_objects PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)

  if(ARG_CU)
    host_cuda_kernels(${name}_kernels CU ${ARG_CU} DEFINES ${ARG_DEFINES})
    list(APPEND ARG_KERNELS ${name}_kernels)
  endif()
  host_cuda_sets(${name} ${ARG_KERNELS})
  host_cuda_module(${name}_host ${name}_objects "${ARG_OUTPUT_DIRECTORY}" "${${name}_SET_OBJECTS}"
                   "${${name}_SET_KERNELS}" host_cudart ${ARG_DEPS} ${ARG_LIBS})
  # Its own libraries before any of the system; RPATH, as RUNPATH would not be asked where a sanitizer intercepts dlopen.
  set_target_properties(${name}_host PROPERTIES BUILD_RPATH ${HOST_CUDA_LIBRARIES})
  target_link_options(${name}_host PRIVATE -Wl,--disable-new-dtags)

  find_package(CUDAToolkit QUIET)
  if(SLUICE_SANITIZE OR NOT CUDAToolkit_FOUND)
    return()
  endif()
  host_cuda_module(${name} ${name}_objects "${ARG_OUTPUT_DIRECTORY}" "${${name}_SET_DEVICE_OBJECTS}" "" CUDA::cudart_static
                   ${ARG_DEPS} ${ARG_LIBS})
endfunction()

# ARGN: what it links. What it lacks fails here, not when it is loaded; what it links shows nothing outside.
function(host_cuda_module name objects directory nvcc_objects kernels)
  set_source_files_properties(${nvcc_objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  add_library(${name} MODULE $<TARGET_OBJECTS:${objects}> ${kernels} ${nvcc_objects})
  target_link_libraries(${name} PRIVATE ${ARGN})
  target_link_options(${name} PRIVATE -Wl,-z,defs -Wl,--exclude-libs,ALL)
  set_target_properties(${name} PROPERTIES PREFIX "" LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY ${directory})
endfunction()

function(host_cuda_program name)
  if(NOT SLUICE_NVCC)
    message(WARNING "${name} is not built: no nvcc of CUDA ${HOST_CUDA_TOOLKIT}")
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "KERNELS;SRCS;DEPS;LIBS" ${ARGN})
  host_cuda_sets(${name} ${ARG_KERNELS})
  add_library(${name}_objects OBJECT ${ARG_SRCS})
  sluice_target_setup(${name}_objects)
  target_include_directories(${name}_objects SYSTEM PRIVATE ${SLUICE_CUDA_INCLUDE})
  target_link_libraries(${name}_objects PRIVATE ${ARG_DEPS} ${ARG_LIBS})

  add_executable(${name}_host $<TARGET_OBJECTS:${name}_objects> ${${name}_SET_KERNELS} ${${name}_SET_OBJECTS})
  target_link_libraries(${name}_host PRIVATE ${ARG_DEPS} ${ARG_LIBS} host_cuda_runtime host_cuda_ptx host_cuda_engine
                        sluice_executable)
  set_target_properties(${name}_host PROPERTIES LINKER_LANGUAGE CXX)

  find_package(CUDAToolkit QUIET)
  if(SLUICE_SANITIZE OR NOT CUDAToolkit_FOUND)
    return()
  endif()
  add_executable(${name} $<TARGET_OBJECTS:${name}_objects> ${${name}_SET_DEVICE_OBJECTS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} ${ARG_LIBS} CUDA::cudart_static sluice_executable)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()
