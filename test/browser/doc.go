// Package browser tests the status page in a real browser, headless Chromium: with 10,000 Services, with hostile names, with
// and without JavaScript, and on a narrow screen. With -update it writes the screenshots of docs/images.
//
// It is a module of its own, because it needs a library that the program does not.
package browser
