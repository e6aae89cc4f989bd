# A boot sector that does what every kernel does first: long mode, paging, timer interrupts. Prints and ends.
.code16
.globl _start
_start:
    cli
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movw $0x7c00, %sp
    # Page tables at 0x1000: the first 2 MiB, one to one.
    movw $0x1000, %di
    movw $0x1800, %cx
    cld
    rep stosw
    movw $0x2003, (0x1000)
    movw $0x3003, (0x2000)
    movw $0x0083, (0x3000)
    # The timer's interrupt (vector 0x20) in a table at 0x5000.
    movw $0x5000, %di
    movw $0x400, %cx
    rep stosw
    movw $tick, (0x5200)
    movw $8, (0x5202)
    movw $0x8e00, (0x5204)
    # Interrupt controllers: vectors from 0x20 on, the timer alone.
    movb $0x11, %al
    outb %al, $0x20
    outb %al, $0xa0
    movb $0x20, %al
    outb %al, $0x21
    movb $0x28, %al
    outb %al, $0xa1
    movb $4, %al
    outb %al, $0x21
    movb $2, %al
    outb %al, $0xa1
    movb $1, %al
    outb %al, $0x21
    outb %al, $0xa1
    movb $0xfe, %al
    outb %al, $0x21
    movb $0xff, %al
    outb %al, $0xa1
    lidt idt
    lgdt gdt
    movl $0x1000, %eax
    movl %eax, %cr3
    movl $0x20, %eax
    movl %eax, %cr4
    movl $0xc0000080, %ecx
    rdmsr
    orl $0x100, %eax
    wrmsr
    movl $0x80000011, %eax
    movl %eax, %cr0
    ljmp $8, $long
.code64
long:
    xorl %ebx, %ebx
    movl $0x7c00, %esp
    sti
1:  hlt
    cmpl $3, %ebx
    jb 1b
    movl $words, %esi
    movw $0x3f8, %dx
2:  lodsb
    testb %al, %al
    jz 3f
    outb %al, %dx
    jmp 2b
3:  movb $0, %al
    outb %al, $0xf4
4:  hlt
    jmp 4b
tick:
    incl %ebx
    movb $0x20, %al
    outb %al, $0x20
    iretq
words: .asciz "hotdesk: it runs\n"
.balign 8
table: .quad 0, 0x00209a0000000000
gdt: .word 15
    .long table
idt: .word 0xfff
    .long 0x5000
.org 510
.word 0xaa55
