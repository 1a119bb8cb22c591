;; WASI preview 1 as far as Go's runtime asks for it, without WASI: clocks, sleep, random and log come
;; from sutler:helm-engine/sys; there is no file, no environment, and leaving the process traps.
;; Errno: 0 success, 8 badf, 44 noent, 52 nosys.
(module
  (import "env" "memory" (memory 0))
  (import "sutler:helm-engine/sys@0.1.0" "wall-ns" (func $wall (result i64)))
  (import "sutler:helm-engine/sys@0.1.0" "mono-ns" (func $mono (result i64)))
  (import "sutler:helm-engine/sys@0.1.0" "sleep-ns" (func $sleep (param i64)))
  (import "sutler:helm-engine/sys@0.1.0" "random" (func $random (result i64)))
  (import "sutler:helm-engine/sys@0.1.0" "log" (func $log (param i32 i32)))

  (func $now (param $clock i32) (result i64)
    (if (result i64) (i32.eqz (local.get $clock)) (then (call $wall)) (else (call $mono))))

  (func (export "sched_yield") (result i32) (i32.const 0))
  (func (export "proc_exit") (param $code i32) unreachable)

  ;; argv = ["helm"]: klog indexes os.Args[0] when it starts
  (func (export "args_sizes_get") (param $count i32) (param $bytes i32) (result i32)
    (i32.store (local.get $count) (i32.const 1))
    (i32.store (local.get $bytes) (i32.const 5))
    (i32.const 0))
  (func (export "args_get") (param $argv i32) (param $text i32) (result i32)
    (i32.store (local.get $argv) (local.get $text))
    (i32.store align=1 (local.get $text) (i32.const 0x6d6c6568)) ;; "helm"
    (i32.store8 offset=4 (local.get $text) (i32.const 0))
    (i32.const 0))
  (func (export "environ_sizes_get") (param $count i32) (param $bytes i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $bytes) (i32.const 0))
    (i32.const 0))
  (func (export "environ_get") (param $env i32) (param $text i32) (result i32) (i32.const 0))

  (func (export "clock_time_get") (param $clock i32) (param $precision i64) (param $out i32) (result i32)
    (i64.store (local.get $out) (call $now (local.get $clock)))
    (i32.const 0))

  ;; eight bytes a call, then the tail of the last word
  (func (export "random_get") (param $at i32) (param $left i32) (result i32) (local $word i64)
    (block $whole (loop $words
      (br_if $whole (i32.lt_u (local.get $left) (i32.const 8)))
      (i64.store align=1 (local.get $at) (call $random))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (local.set $left (i32.sub (local.get $left) (i32.const 8)))
      (br $words)))
    (if (local.get $left) (then (local.set $word (call $random))))
    (block $done (loop $tail
      (br_if $done (i32.eqz (local.get $left)))
      (i64.store8 (local.get $at) (local.get $word))
      (local.set $word (i64.shr_u (local.get $word) (i64.const 8)))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br $tail)))
    (i32.const 0))

  ;; everything written is a log line, whatever the descriptor
  (func (export "fd_write") (param $fd i32) (param $iov i32) (param $n i32) (param $out i32) (result i32)
    (local $total i32)
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $n)))
      (if (i32.load offset=4 (local.get $iov))
        (then (call $log (i32.load (local.get $iov)) (i32.load offset=4 (local.get $iov)))))
      (local.set $total (i32.add (local.get $total) (i32.load offset=4 (local.get $iov))))
      (local.set $iov (i32.add (local.get $iov) (i32.const 8)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (br $next)))
    (i32.store (local.get $out) (local.get $total))
    (i32.const 0))
  (func (export "fd_read") (param $fd i32) (param $iov i32) (param $n i32) (param $out i32) (result i32)
    (i32.store (local.get $out) (i32.const 0))
    (i32.const 0))
  (func (export "fd_close") (param i32) (result i32) (i32.const 8))
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_pread") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_pwrite") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_sync") (param i32) (result i32) (i32.const 8))
  (func (export "fd_readdir") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_set_flags") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_filestat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_filestat_set_size") (param i32 i64) (result i32) (i32.const 8))
  (func (export "fd_prestat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_dir_name") (param i32 i32 i32) (result i32) (i32.const 8))
  (func (export "path_open") (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) (i32.const 44))
  (func (export "path_filestat_get") (param i32 i32 i32 i32 i32) (result i32) (i32.const 44))
  (func (export "path_filestat_set_times") (param i32 i32 i32 i32 i64 i64 i32) (result i32) (i32.const 52))
  (func (export "path_create_directory") (param i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_link") (param i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_readlink") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 44))
  (func (export "path_remove_directory") (param i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_rename") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_symlink") (param i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_unlink_file") (param i32 i32 i32) (result i32) (i32.const 52))
  (func (export "sock_accept") (param i32 i32 i32) (result i32) (i32.const 52))
  (func (export "sock_shutdown") (param i32 i32) (result i32) (i32.const 52))

  ;; Go's idle loop: one clock subscription says how long it may sleep (no descriptor is ever polled).
  ;; subscription, 48 bytes: userdata u64 @0, tag u8 @8 (0 = clock), clock u32 @16, timeout u64 @24, flags u16 @40
  ;; (1 = absolute). event, 32 bytes: userdata u64 @0, errno u16 @8, type u8 @10.
  (func $wait (param $sub i32) (result i64) (local $ns i64)
    (local.set $ns (i64.load offset=24 (local.get $sub)))
    (if (i32.and (i32.load16_u offset=40 (local.get $sub)) (i32.const 1))
      (then
        (local.set $ns (i64.sub (local.get $ns) (call $now (i32.load offset=16 (local.get $sub)))))
        (if (i64.lt_s (local.get $ns) (i64.const 0)) (then (local.set $ns (i64.const 0))))))
    (local.get $ns))
  (func (export "poll_oneoff") (param $in i32) (param $out i32) (param $n i32) (param $count i32) (result i32)
    (local $first i32) (local $least i64) (local $ns i64)
    (local.set $least (i64.const 1000000000))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $n)))
      (if (i32.eqz (i32.load8_u offset=8 (local.get $in)))
        (then
          (local.set $ns (call $wait (local.get $in)))
          (if (i64.lt_u (local.get $ns) (local.get $least)) (then (local.set $least (local.get $ns))))
          (if (i32.eqz (local.get $first)) (then (local.set $first (local.get $in))))))
      (local.set $in (i32.add (local.get $in) (i32.const 48)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (br $next)))
    (call $sleep (local.get $least))
    (i32.store (local.get $count) (i32.ne (local.get $first) (i32.const 0)))
    (if (local.get $first)
      (then
        (i64.store (local.get $out) (i64.load (local.get $first)))
        (i64.store offset=8 (local.get $out) (i64.const 0))
        (i64.store offset=16 (local.get $out) (i64.const 0))
        (i64.store offset=24 (local.get $out) (i64.const 0))))
    (i32.const 0))
)
