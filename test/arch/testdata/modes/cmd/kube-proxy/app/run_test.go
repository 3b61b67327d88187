package app

const tested = "nftables"
