# What is installed, how others find it, and the Debian package.
include(CMakePackageConfigHelpers)

if(BUILD_SHARED_LIBS)
  # Programs find the library beside them, wherever the tree was installed.
  file(RELATIVE_PATH to_libraries ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set(program_rpath $ORIGIN/${to_libraries})
endif()

install(TARGETS pando_client EXPORT pando_targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY compute/include/pando compute/c/include/ ${CMAKE_BINARY_DIR}/include/pando
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)
foreach(program pando pando-memory pando-ycsb pando-chaos pando-figures pando-history pando-locks pando-nic pando-node-loop
        pando-shm-speed pando-sim)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "${program_rpath}")
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
# The unit names the place of the program, which is known only when it is installed.
install(CODE "set(PROGRAM \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/pando-memory\")
  configure_file(\"${CMAKE_SOURCE_DIR}/memory/pando-memory@.service.in\"
                 \"${CMAKE_BINARY_DIR}/pando-memory@.service\" @ONLY)")
install(FILES ${CMAKE_BINARY_DIR}/pando-memory@.service DESTINATION lib/systemd/user)
# What compute/tool has made when pando was built.
install(DIRECTORY ${CMAKE_BINARY_DIR}/share/man/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
install(DIRECTORY ${CMAKE_BINARY_DIR}/share/bash-completion ${CMAKE_BINARY_DIR}/share/zsh DESTINATION ${CMAKE_INSTALL_DATADIR})
# pando-cluster finds its modules beside the file that the link leads to.
install(DIRECTORY cluster/pando_cluster DESTINATION ${CMAKE_INSTALL_DATADIR}/pando/cluster USE_SOURCE_PERMISSIONS
        PATTERN __pycache__ EXCLUDE)
install(PROGRAMS cluster/pando-cluster DESTINATION ${CMAKE_INSTALL_DATADIR}/pando/cluster)
file(RELATIVE_PATH to_cluster ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_DATADIR}/pando/cluster/pando-cluster)
file(CREATE_LINK ${to_cluster} ${CMAKE_BINARY_DIR}/pando-cluster SYMBOLIC)
install(FILES ${CMAKE_BINARY_DIR}/pando-cluster DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES cluster/laptop.toml cluster/rack.toml cluster/RUNBOOK.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY cluster/systemd DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# find_package(pando CONFIG)
set(config_directory ${CMAKE_INSTALL_LIBDIR}/cmake/pando)
install(EXPORT pando_targets NAMESPACE pando:: DESTINATION ${config_directory})
configure_package_config_file(compute/package/pandoConfig.cmake.in
                              ${CMAKE_BINARY_DIR}/pandoConfig.cmake
                              INSTALL_DESTINATION ${config_directory})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/pandoConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/pandoConfig.cmake ${CMAKE_BINARY_DIR}/pandoConfigVersion.cmake
        DESTINATION ${config_directory})

# pkg-config. What the library itself needs is private to a shared one, not to a static one.
set(needed_packages "libglog libisal absl_strings absl_synchronization absl_raw_hash_set absl_hash")
set(needed_libraries "-lboost_context -lmemcached -pthread")
if(PANDO_HAVE_VERBS)
  string(APPEND needed_libraries " -libverbs -lcrypto")
endif()
if(BUILD_SHARED_LIBS)
  set(PANDO_PC_REQUIRES_PRIVATE "${needed_packages}")
  set(PANDO_PC_LIBS_PRIVATE "${needed_libraries}")
else()
  set(PANDO_PC_REQUIRES " ${needed_packages}")
  set(PANDO_PC_LIBS " ${needed_libraries}")
endif()
file(RELATIVE_PATH PANDO_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(compute/package/pando.pc.in ${CMAKE_BINARY_DIR}/pando.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/pando.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# cpack -G DEB
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME pando)
set(CPACK_PACKAGE_CONTACT "Pando developers <pando@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION database)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "${PROJECT_DESCRIPTION}\n Memory servers, a client library with its headers, a command-line"
    " client and benchmarks.")
string(REPLACE ";" "" CPACK_DEBIAN_PACKAGE_DESCRIPTION "${CPACK_DEBIAN_PACKAGE_DESCRIPTION}")
# Only for building against it; the programs need none of these.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS
    "libabsl-dev, libboost-context-dev, libgoogle-glog-dev, libisal-dev, libibverbs-dev, libmemcached-dev, libssl-dev, \
pkg-config")
include(CPack)

if(PANDO_BUILD_TESTS AND PANDO_SANITIZER STREQUAL "")
  foreach(kind static shared)
    add_test(NAME package.${kind}
             COMMAND ${CMAKE_SOURCE_DIR}/compute/package/package_test ${kind} ${CMAKE_BINARY_DIR})
    set_tests_properties(package.${kind} PROPERTIES LABELS package TIMEOUT 1200 COST 50)
  endforeach()
  add_test(NAME package.deb
           COMMAND ${CMAKE_SOURCE_DIR}/compute/package/package_test deb ${CMAKE_BINARY_DIR})
  set_tests_properties(package.deb PROPERTIES LABELS package TIMEOUT 600 COST 50)
endif()
