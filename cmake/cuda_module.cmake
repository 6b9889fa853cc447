# The CUDA module liborrery_cuda.so, opened at run time (exec/engine/cuda_loader.h). It alone needs cuBLASLt and NCCL.
# libcuda and NVML are never linked: a library that names them does not even load where there is no driver.
find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib /usr/local/cuda/lib)
if(NOT NCCL_INCLUDE OR NOT NCCL_LIBRARY)
  message(STATUS "No NCCL: the CUDA module is not built")
  return()
endif()
file(GLOB cuda_host_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/exec/cuda/*.cpp)
file(GLOB cuda_kernel_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/exec/cuda/kernels/*.cu)

add_library(orrery_cuda MODULE ${cuda_host_sources} ${cuda_kernel_sources})
set_target_properties(orrery_cuda PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
  CUDA_STANDARD 20
  CUDA_RUNTIME_LIBRARY Static
  CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
target_include_directories(orrery_cuda PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(orrery_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_INCLUDE})
target_link_libraries(orrery_cuda PRIVATE orrery_flags orrery::exec CUDA::cudart_static CUDA::cublasLt ${NCCL_LIBRARY})
target_compile_options(orrery_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra,-Wshadow>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${ORRERY_WERROR}>>:-Werror=all-warnings>)
# The static libraries inside keep their names to themselves: the program has its own copies.
target_link_options(orrery_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,--gc-sections -Wl,-z,defs)
install(TARGETS orrery_cuda LIBRARY DESTINATION bin)
