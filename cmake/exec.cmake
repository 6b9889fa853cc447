# exec: the executor core (no MPI, no CUDA), the MPI transport for the worker, and the CUDA module.
find_package(BLAS QUIET)
find_path(CBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-pthread openblas)
# hwloc describes the machine for `orrery probe`; MPICH brings it along.
find_path(HWLOC_INCLUDE hwloc.h REQUIRED)
find_library(HWLOC_LIBRARY hwloc REQUIRED)
# PCRE2 splits text by Unicode classes before byte-pair encoding.
find_path(PCRE2_INCLUDE pcre2.h REQUIRED)
find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
# Categories, lower case and decompositions of all scripts, for BERT's word pieces.
find_path(UTF8PROC_INCLUDE utf8proc.h REQUIRED)
find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)
# CRC-32 of checkpoints.
find_package(ZLIB REQUIRED)
# XXH3, in one header, for hashes of weights that replicas compare.
find_path(XXHASH_INCLUDE xxhash.h REQUIRED)
orrery_room(exec DEPENDS base models clusters plan
            LINK Threads::Threads ${CMAKE_DL_LIBS} ${HWLOC_LIBRARY} ${PCRE2_LIBRARY} ${UTF8PROC_LIBRARY} ZLIB::ZLIB
            EXCLUDE "/exec/mpi/" "/exec/cuda/" "/exec/cpu/")
target_link_libraries(orrery_exec PRIVATE Eigen3::Eigen)  # fp16 without a processor's instructions
orrery_unity(orrery_exec ALONE half completion compression_states encode_data faults guards held_states initial_weights
             initialise measure message_timer op_timer safetensors safetensors_header sample spikes state_hash
             tokenizer_open)

file(GLOB cpu_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/exec/cpu/*.cpp)
if(BLAS_FOUND AND CBLAS_INCLUDE AND cpu_sources)
  add_library(orrery_exec_cpu STATIC ${cpu_sources})
  add_library(orrery::exec_cpu ALIAS orrery_exec_cpu)
  target_include_directories(orrery_exec_cpu PRIVATE ${CBLAS_INCLUDE})
  target_link_libraries(orrery_exec_cpu PUBLIC orrery::exec ${BLAS_LIBRARIES} PRIVATE orrery_flags)
  target_compile_options(orrery_exec_cpu PRIVATE -O3)
  # The inner loops, once per instruction set; the backend chooses at run time. Strict floating point: only errno and
  # traps, which nobody reads, are given up.
  file(GLOB simd_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/exec/cpu/simd/*.cpp)
  function(orrery_simd_level level bytes)
    add_library(orrery_simd_${level} OBJECT ${simd_sources})
    target_link_libraries(orrery_simd_${level} PRIVATE orrery_flags)
    target_compile_definitions(orrery_simd_${level} PRIVATE ORRERY_SIMD_LEVEL=${level} ORRERY_SIMD_BYTES=${bytes})
    target_compile_options(orrery_simd_${level} PRIVATE -O3 -fno-math-errno -fno-trapping-math -Wno-psabi ${ARGN})
    target_sources(orrery_exec_cpu PRIVATE $<TARGET_OBJECTS:orrery_simd_${level}>)
  endfunction()
  # Whether a product and a sum are rounded as one must not depend on how many columns of a row a rank has.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/exec/cpu/simd/tables.cpp PROPERTIES COMPILE_OPTIONS
                                                                                       -ffp-contract=off)
  orrery_simd_level(baseline 16)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    orrery_simd_level(avx2 32 -march=haswell)
    orrery_simd_level(avx512 64 -march=skylake-avx512 -mprefer-vector-width=512)
    target_compile_definitions(orrery_exec_cpu PRIVATE ORRERY_SIMD_X86)
  endif()
  set(ORRERY_HAVE_CPU_BACKEND ON)
else()
  message(STATUS "No CBLAS: the CPU backend and the worker are not built")
  set(ORRERY_HAVE_CPU_BACKEND OFF)
endif()

set(ORRERY_HAVE_WORKER OFF)
if(ORRERY_MPI)
  enable_language(C)  # FindMPI looks for the C bindings with a C compiler
  find_package(MPI QUIET COMPONENTS C)
endif()
if(MPI_C_FOUND AND ORRERY_HAVE_CPU_BACKEND)
  file(GLOB mpi_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/exec/mpi/*.cpp)
  add_library(orrery_exec_mpi STATIC ${mpi_sources})
  add_library(orrery::exec_mpi ALIAS orrery_exec_mpi)
  target_link_libraries(orrery_exec_mpi PUBLIC orrery::exec MPI::MPI_C PRIVATE orrery_flags)
  set(ORRERY_HAVE_WORKER ON)
endif()

# CUDA: a module loaded at run time, so that every binary starts where its libraries are absent.
set(ORRERY_HAVE_CUDA OFF)
if(ORRERY_CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER)
    check_language(CUDA)
  endif()
  file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/exec/cuda/*.cu ${PROJECT_SOURCE_DIR}/exec/cuda/*.cpp)
  if(CMAKE_CUDA_COMPILER AND cuda_sources)
    if(NOT CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    endif()
    enable_language(CUDA)
    if(CMAKE_VERSION VERSION_LESS 3.25.2)  # Debian 12's 3.25.1 does not know CUDA 20
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_COMPILE_FEATURES cuda_std_20)
      list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    find_package(CUDAToolkit REQUIRED)
    include(${PROJECT_SOURCE_DIR}/cmake/cuda_module.cmake)
    set(ORRERY_HAVE_CUDA ON)
  endif()
endif()
