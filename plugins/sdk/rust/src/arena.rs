//! The allocator of a guest whose life is one call.
//!
//! Growing linear memory costs the host two system calls a sandbox, so blocks come from an arena that lies in
//! the module's initial memory; only when it is used up does memory grow. Freed blocks go to a list of their
//! size class and are taken from there again. Nothing is merged: a sandbox does not live long enough.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;

const ARENA: usize = 512 << 10;
const PAGE: usize = 64 << 10;
/// Four classes a doubling, from 16 bytes to 1 GiB.
const CLASSES: usize = 108;
const ALIGN: usize = 16;

#[repr(align(65536))]
struct Memory(UnsafeCell<[u8; ARENA]>);
// SAFETY: the target has one thread.
unsafe impl Sync for Memory {}
static MEMORY: Memory = Memory(UnsafeCell::new([0; ARENA]));

struct State {
    top: usize,
    end: usize,
    free: [usize; CLASSES],
}

pub(crate) struct Arena(UnsafeCell<State>);
// SAFETY: the target has one thread.
unsafe impl Sync for Arena {}

/// The class of a size, and the size of the class's blocks: at most a quarter more.
const fn class(size: usize) -> Option<(usize, usize)> {
    if size <= ALIGN {
        return Some((0, ALIGN));
    }
    let log = (size - 1).ilog2() as usize;
    let quarter = 1_usize << (log - 2);
    let step = (size - 1 - (1 << log)) / quarter;
    let (index, block) = (1 + (log - 4) * 4 + step, (1 << log) + (step + 1) * quarter);
    // Sixteen-byte alignment of every block, also of the small classes between.
    let block = (block + ALIGN - 1) & !(ALIGN - 1);
    if index < CLASSES { Some((index, block)) } else { None }
}

impl State {
    /// A fresh block of `size` bytes, from the arena or from grown memory.
    unsafe fn bump(&mut self, size: usize, align: usize) -> *mut u8 {
        if self.end == 0 {
            self.top = MEMORY.0.get() as usize;
            self.end = self.top + ARENA;
        }
        let at = (self.top + align - 1) & !(align - 1);
        let Some(past) = at.checked_add(size) else { return null_mut() };
        if past <= self.end {
            self.top = past;
            return at as *mut u8;
        }
        let pages = (size + align).div_ceil(PAGE).max(4);
        let before = core::arch::wasm32::memory_grow(0, pages);
        if before == usize::MAX {
            return null_mut();
        }
        let start = before * PAGE;
        if start != self.end {
            self.top = start;
        }
        // At the very end of the address space the last block stays unused, so that `end` never wraps to zero.
        self.end = start.checked_add(pages * PAGE).unwrap_or(usize::MAX & !(ALIGN - 1));
        let at = (self.top + align - 1) & !(align - 1);
        self.top = at + size;
        at as *mut u8
    }
}

// SAFETY: blocks are disjoint: a block is either above `top`, in one list, or handed out once.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let state = unsafe { &mut *self.0.get() };
        // Rare: aligned beyond a block's natural alignment; such a block is never taken again.
        if layout.align() > ALIGN {
            return unsafe { state.bump(layout.size(), layout.align()) };
        }
        let Some((index, block)) = class(layout.size()) else { return null_mut() };
        let Some(head) = state.free.get_mut(index) else { return null_mut() };
        if *head != 0 {
            let found = *head as *mut u8;
            *head = unsafe { *found.cast::<usize>() };
            return found;
        }
        unsafe { state.bump(block, ALIGN) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let state = unsafe { &mut *self.0.get() };
        if layout.align() > ALIGN {
            return;
        }
        let Some((index, block)) = class(layout.size()) else { return };
        if at as usize + block == state.top {
            state.top = at as usize;
            return;
        }
        if let Some(head) = state.free.get_mut(index) {
            unsafe { *at.cast::<usize>() = *head };
            *head = at as usize;
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGN
            && let (Some((_, old)), Some((_, new))) = (class(layout.size()), class(size))
        {
            if old == new {
                return at;
            }
            // The newest block grows where it stands: what a string that is being written does.
            let state = unsafe { &mut *self.0.get() };
            if at as usize + old == state.top && at as usize + new <= state.end {
                state.top = at as usize + new;
                return at;
            }
        }
        let Ok(to) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
        let fresh = unsafe { self.alloc(to) };
        if !fresh.is_null() {
            unsafe {
                core::ptr::copy_nonoverlapping(at, fresh, layout.size().min(size));
                self.dealloc(at, layout);
            }
        }
        fresh
    }
}

#[global_allocator]
static GLOBAL: Arena = Arena(UnsafeCell::new(State { top: 0, end: 0, free: [0; CLASSES] }));
