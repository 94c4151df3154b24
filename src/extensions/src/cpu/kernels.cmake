# The kernels of this processor: one object library per instruction set, so that its flags reach no other code.
# interface/machine.h lists the same names, machine.cpp the CPU bits of each. After including this file CPU_ISAS holds the
# names, and a target that links to cpu_kernels gets the kernels, the choice among them and the thread pool.
set(CPU_ISAS scalar)
set(cpu_flags_scalar "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND CPU_ISAS avx2 avx512 avx512bf16 amx)
  set(cpu_flags_avx2 -mavx2 -mfma -mf16c)
  set(cpu_flags_avx512 ${cpu_flags_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
  set(cpu_flags_avx512bf16 ${cpu_flags_avx512} -mavx512bf16)
  set(cpu_flags_amx ${cpu_flags_avx512bf16} -mavx512vbmi -mavx512vnni -mamx-tile -mamx-bf16 -mamx-int8)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND CPU_ISAS neon)
  set(cpu_flags_neon "")
endif()

# Scalar kernels compile in half the time at -O2. AVX-512 kernels stay at -O3: prefill of qwen2-0.5b was up to 7 % slower
# at -O2.
if(CMAKE_CXX_FLAGS_RELEASE MATCHES "-O3")
  set(cpu_effort_scalar $<$<CONFIG:Release>:-O2>)
endif()

# No contraction of a * b + c into one rounding, in all of the extension: kernels rely on equal expressions being rounded
# alike in different places.
set(EXACT_ROUNDING -ffp-contract=off)

find_package(Threads REQUIRED)
add_library(cpu_kernels INTERFACE)
target_include_directories(cpu_kernels INTERFACE ${CMAKE_CURRENT_LIST_DIR}/..)
target_compile_features(cpu_kernels INTERFACE cxx_std_20)
target_compile_options(cpu_kernels INTERFACE ${EXACT_ROUNDING})
target_link_libraries(cpu_kernels INTERFACE Threads::Threads)

function(add_cpu_objects name)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/..)
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_compile_options(${name} PRIVATE ${EXACT_ROUNDING})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
  target_sources(cpu_kernels INTERFACE $<TARGET_OBJECTS:${name}>)
endfunction()

# A build in the source tree is for this machine; a package is for others too.
set(TINY_LLM_BUILD_ISAS
    ""
    CACHE STRING "Instruction sets to compile: all, native (this machine's), or names such as scalar,avx2; if empty, native \
in place, else all")
set(wanted_isas ${TINY_LLM_BUILD_ISAS})
if(NOT wanted_isas AND TINY_LLM_IN_PLACE)
  set(wanted_isas native)
elseif(NOT wanted_isas)
  set(wanted_isas all)
endif()

# The instruction sets of this machine, found by the code that chooses among them at run time, plus those of earlier
# machines that built in this folder, so that machines which share it do not rebuild in turn. The program and the names
# stay in the build folder: `pdm run` runs it to see whether this machine needs more.
function(find_machine_isas result)
  set(program "${CMAKE_BINARY_DIR}/machine_isas")
  set(folder ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/interface)
  if("${folder}/machine.cpp" IS_NEWER_THAN "${program}" OR "${folder}/machine.h" IS_NEWER_THAN "${program}"
     OR "${folder}/print_machine_isas.cpp" IS_NEWER_THAN "${program}")
    try_compile(
      compiled "${CMAKE_BINARY_DIR}"
      SOURCES ${folder}/machine.cpp ${folder}/print_machine_isas.cpp
      CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${folder}/../.."
      OUTPUT_VARIABLE errors
      COPY_FILE "${program}"
      CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
    if(NOT compiled)
      message(FATAL_ERROR "${errors}")
    endif()
  endif()
  execute_process(COMMAND "${program}" OUTPUT_VARIABLE isas COMMAND_ERROR_IS_FATAL ANY)
  if(EXISTS "${program}.txt")
    file(READ "${program}.txt" before)
  endif()
  string(REGEX MATCHALL "[a-z0-9]+" isas "${isas} ${before}")
  list(REMOVE_DUPLICATES isas)
  list(JOIN isas "\n" lines)
  file(WRITE "${program}.txt" "${lines}\n")
  set(${result} ${isas} PARENT_SCOPE)
endfunction()

if(NOT wanted_isas STREQUAL "native")
  file(REMOVE "${CMAKE_BINARY_DIR}/machine_isas")  # unused: the machine does not decide
endif()
if(wanted_isas STREQUAL "all")
  set(built_isas ${CPU_ISAS})
elseif(NOT wanted_isas STREQUAL "native")
  string(REPLACE "," ";" built_isas "${wanted_isas}")
  foreach(isa IN LISTS built_isas)
    if(NOT isa IN_LIST CPU_ISAS)
      list(JOIN CPU_ISAS ", " known)
      message(FATAL_ERROR "TINY_LLM_BUILD_ISAS: got '${wanted_isas}', expected all, native, or names of ${known}")
    endif()
  endforeach()
  if(NOT "scalar" IN_LIST built_isas)
    message(FATAL_ERROR "TINY_LLM_BUILD_ISAS: got '${wanted_isas}', expected scalar among them: every machine has it")
  endif()
  foreach(isa IN ITEMS avx512bf16 amx)  # their tables start as copies of the one of avx512
    if(isa IN_LIST built_isas AND NOT "avx512" IN_LIST built_isas)
      message(FATAL_ERROR "TINY_LLM_BUILD_ISAS: got '${wanted_isas}', expected avx512 among them: ${isa} uses its kernels")
    endif()
  endforeach()
elseif(CMAKE_CROSSCOMPILING)
  message(FATAL_ERROR "TINY_LLM_BUILD_ISAS: got native, expected all: this build is for another machine")
else()
  find_machine_isas(built_isas)
endif()
list(JOIN built_isas " " built)
message(STATUS "Instruction sets: ${built}")

set(cpu ${CMAKE_CURRENT_LIST_DIR})
add_cpu_objects(cpu_dispatch ${cpu}/interface/cpus.cpp ${cpu}/interface/isa.cpp ${cpu}/interface/machine.cpp
                ${cpu}/interface/threads.cpp ${cpu}/runtime/placement.cpp ${cpu}/runtime/region_log.cpp
                ${cpu}/runtime/scratch.cpp ${cpu}/runtime/thread_pool.cpp)
foreach(isa IN LISTS CPU_ISAS)
  if(isa IN_LIST built_isas)
    add_cpu_objects(cpu_${isa} ${cpu}/isa/isa_${isa}.cpp)
    target_compile_options(cpu_${isa} PRIVATE ${cpu_flags_${isa}} ${cpu_effort_${isa}})
  else()
    add_cpu_objects(cpu_${isa} ${cpu}/isa/absent_isa.cpp)
  endif()
  target_compile_definitions(cpu_${isa} PRIVATE TINY_LLM_ISA=${isa})
endforeach()
