# CUDA tests. test_cuda_emulated compiles exec/cuda as C++ against tests/gpu/emulation and needs neither nvcc nor a GPU;
# test_gpu opens the module and is skipped (77) where there is no GPU.
set(gpu_dir ${CMAKE_CURRENT_SOURCE_DIR}/gpu)

if(ORRERY_HAVE_CPU_BACKEND)
  # Operands and expected results of operators, for each backend's test.
  file(GLOB operator_cases CONFIGURE_DEPENDS ${gpu_dir}/*cases.cpp)
  add_library(operator_cases STATIC ${operator_cases} ${gpu_dir}/testing.cpp)
  target_link_libraries(operator_cases PUBLIC orrery::exec PRIVATE orrery_flags)

  file(GLOB emulated_cuda CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/exec/cuda/*.cpp)
  file(GLOB emulated_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/exec/cuda/kernels/*.cu)
  file(GLOB emulated_tests CONFIGURE_DEPENDS ${gpu_dir}/emulated_*.cpp)
  # The .cu files again, as C++: copies in the build tree, so that the CUDA language keeps the originals.
  foreach(kernel ${emulated_kernels})
    get_filename_component(name ${kernel} NAME_WE)
    set(wrapper ${CMAKE_CURRENT_BINARY_DIR}/emulated_${name}.cpp)
    file(CONFIGURE OUTPUT ${wrapper} CONTENT
         "// ${name}.cu, compiled as C++ against the emulated runtime.\n#include \"${kernel}\"\n" @ONLY)
    list(APPEND emulated_cuda ${wrapper})
  endforeach()
  file(GLOB emulation CONFIGURE_DEPENDS ${gpu_dir}/emulation/*.cpp)
  add_executable(test_cuda_emulated ${gpu_dir}/operators_test.cpp ${emulated_tests} ${emulated_cuda} ${emulation})
  # These keep names to themselves that a neighbour has too.
  set_source_files_properties(${emulated_cuda} ${emulation} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_include_directories(test_cuda_emulated SYSTEM BEFORE PRIVATE ${gpu_dir}/emulation)
  target_compile_definitions(test_cuda_emulated PRIVATE ORRERY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_compile_options(test_cuda_emulated PRIVATE -O2 -Wno-unknown-pragmas -Wno-subobject-linkage)
  target_link_libraries(test_cuda_emulated PRIVATE exec_support operator_cases GTest::gtest_main orrery_flags)
  orrery_unity(test_cuda_emulated)
  orrery_unit_test(test_cuda_emulated cuda_emulated Cuda/* EmulatedCudnn* HostWaits* Plans/* TrainingBy*
                   GraphsOfATraining*
                   OnDevices* EmulatedTraining* EmulatedProbe* Gradients/* MaskedTraining*
                   EmulatedDropoutOf* GraphsWith* Sampling* EmulatedRecommend* EmulatedMixtures*)
  add_test(NAME long.cuda_mixtures COMMAND test_cuda_emulated --gtest_also_run_disabled_tests
                                           --gtest_filter=DISABLED_Long/*)
  set_tests_properties(long.cuda_mixtures PROPERTIES LABELS long TIMEOUT 600)
endif()

if(TARGET orrery_cuda AND ORRERY_HAVE_CPU_BACKEND)
  add_executable(test_gpu ${gpu_dir}/operators_test.cpp ${gpu_dir}/large_test.cpp ${gpu_dir}/module_backend.cpp)
  target_link_libraries(test_gpu PRIVATE operator_cases orrery::exec_cpu GTest::gtest orrery_flags)
  orrery_unity(test_gpu)
  add_dependencies(test_gpu orrery_cuda)
  add_executable(gpu_bench ${gpu_dir}/bench.cpp)  # scripts/gpu-check runs it
  target_link_libraries(gpu_bench PRIVATE orrery::exec orrery_flags)
  add_dependencies(gpu_bench orrery_cuda)
  add_test(NAME gpu.operators COMMAND test_gpu)
  set_tests_properties(gpu.operators PROPERTIES LABELS gpu SKIP_RETURN_CODE 77)
endif()

# The half of scripts/gpu-check that runs on a GPU machine, with fake programs; and what a rank's end does to the
# other, on CPUs.
add_test(NAME thorough.gpu_check COMMAND ${gpu_dir}/check_test.py)
set_tests_properties(thorough.gpu_check PROPERTIES LABELS thorough TIMEOUT 300)
if(TARGET test_gpu)
  set_tests_properties(thorough.gpu_check PROPERTIES ENVIRONMENT ORRERY_TEST_GPU=$<TARGET_FILE:test_gpu>)
endif()
if(ORRERY_HAVE_WORKER)
  add_test(NAME mpi.lost_peer COMMAND ${gpu_dir}/check_test.py LostPeer)
  set_tests_properties(mpi.lost_peer PROPERTIES LABELS mpi RUN_SERIAL ON TIMEOUT 120 ENVIRONMENT
                       "ORRERY_WORKER=$<TARGET_FILE:orrery-worker>;ORRERY_BINARY=$<TARGET_FILE:orrery>")
  add_test(NAME cli.one_rank_probes_without_mpi COMMAND orrery-worker --probe --transport threads --budget 1 --threads 1
                                                        --most-bytes 2000000 --stream-bytes 1000000)
  set_tests_properties(cli.one_rank_probes_without_mpi PROPERTIES LABELS cli PASS_REGULAR_EXPRESSION
                       "\"event\":\"end\".*\"ranks\":1")
endif()
