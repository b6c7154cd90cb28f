# libpando: what an application links, as pando::client. The objects of the rooms that make up a
# client, in one library; static, or shared with BUILD_SHARED_LIBS.
set(PANDO_CLIENT_ROOMS base wire fabric link shm registry sched hot compute c)

if(PANDO_HAVE_VERBS)
  list(APPEND PANDO_CLIENT_ROOMS auth verbs)
endif()

set(objects "")
foreach(room IN LISTS PANDO_CLIENT_ROOMS)
  list(APPEND objects $<TARGET_OBJECTS:pando_${room}>)
endforeach()
add_library(pando_client ${objects})
add_library(pando::client ALIAS pando_client)
set_target_properties(pando_client PROPERTIES
  OUTPUT_NAME pando
  EXPORT_NAME client
  LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION}
  # Before 1.0 a minor release may change the interface.
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

configure_file(compute/include/pando/version.h.in ${CMAKE_BINARY_DIR}/include/pando/version.h @ONLY)
target_include_directories(pando_client PUBLIC
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/compute/include>
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/compute/c/include>
  $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(pando_client INTERFACE cxx_std_20)
if(BUILD_SHARED_LIBS)
  # The C functions have a version.
  set(map ${CMAKE_SOURCE_DIR}/compute/c/pando.map)
  target_link_options(pando_client PRIVATE LINKER:--version-script=${map})
  set_target_properties(pando_client PROPERTIES LINK_DEPENDS ${map})
endif()
target_link_libraries(pando_client
  PUBLIC absl::status absl::statusor
  PRIVATE absl::btree absl::cleanup absl::flat_hash_map absl::flat_hash_set absl::inlined_vector
          absl::strings absl::synchronization Boost::context glog::glog isal memcached Threads::Threads)
if(PANDO_HAVE_VERBS)
  target_link_libraries(pando_client PRIVATE ibverbs crypto)
endif()
